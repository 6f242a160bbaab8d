//! Both variants of the discovery protocol as pure state machines: requests and changes in, responses out.
//!
//! Invariant: a response is sent for news only; one that was refused is not sent again until its content changes.

use envoy_types::pb::{
    envoy::service::discovery::v3::{
        DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
        Resource as Versioned,
    },
    google::rpc,
};
use xxhash_rust::xxh3::Xxh3Default;

use super::{
    view::{Resource, View, type_url},
    wanted::{ALL, Wanted, Wrong},
};

/// What a request led to.
#[derive(Debug)]
pub struct Step<R> {
    /// What to answer.
    pub reply: Option<R>,
    /// The other side refused the last response, and says why.
    pub refused: Option<String>,
}

/// One variant of the protocol.
pub trait Machine: Send + Default + 'static {
    /// What a client sends.
    type Request: Send + 'static;
    /// What it is sent.
    type Reply: Send + 'static;
    /// The variant's name in metrics.
    const NAME: &'static str;

    /// The client says something.
    ///
    /// # Errors
    /// The stream is to be ended.
    fn request(&mut self, request: Self::Request, view: &View) -> Result<Step<Self::Reply>, Wrong>;

    /// The view changed.
    fn changed(&mut self, view: &View) -> Option<Self::Reply>;
}

/// State of the world: a request names all that is wanted, and a response holds what is news of it.
#[derive(Debug, Default)]
pub struct Sotw {
    wanted: Wanted,
    begun: bool,
    named: bool,
    nonce: u64,
}

impl Machine for Sotw {
    type Request = DiscoveryRequest;
    type Reply = DiscoveryResponse;
    const NAME: &'static str = "sotw";

    fn request(&mut self, request: DiscoveryRequest, view: &View) -> Result<Step<DiscoveryResponse>, Wrong> {
        expect_type(&request.type_url)?;
        if !request.response_nonce.is_empty() && request.response_nonce != self.nonce.to_string() {
            // It answers a response that is not the last one: its answer to that says all of this again.
            return Ok(Step { reply: None, refused: None });
        }
        let refused = refusal(request.error_detail);
        if request.resource_names.is_empty() && !self.named {
            self.wanted.all();
        } else {
            self.named = true;
            self.wanted.replace(request.resource_names)?;
        }
        self.begun = true;
        Ok(Step { reply: self.changed(view), refused })
    }

    fn changed(&mut self, view: &View) -> Option<DiscoveryResponse> {
        if !self.begun {
            return None;
        }
        let due = self.wanted.due(view);
        let absent: Vec<_> = due.absent.iter().map(|name| Resource::empty(name)).collect();
        let news: Vec<&Resource> = due.found.iter().map(|(_, found)| *found).chain(&absent).collect();
        if news.is_empty() {
            return None;
        }
        let mut version = Xxh3Default::new();
        news.iter().for_each(|resource| version.update(resource.version.as_bytes()));
        self.nonce += 1;
        Some(DiscoveryResponse {
            version_info: format!("{:016x}", version.digest()),
            resources: news.into_iter().map(|resource| resource.body.clone()).collect(),
            type_url: type_url(),
            nonce: self.nonce.to_string(),
            ..Default::default()
        })
    }
}

/// Delta: requests change what is wanted, and each resource has a version of its own.
#[derive(Debug, Default)]
pub struct Delta {
    wanted: Wanted,
    begun: bool,
    nonce: u64,
}

impl Machine for Delta {
    type Request = DeltaDiscoveryRequest;
    type Reply = DeltaDiscoveryResponse;
    const NAME: &'static str = "delta";

    fn request(
        &mut self,
        request: DeltaDiscoveryRequest,
        view: &View,
    ) -> Result<Step<DeltaDiscoveryResponse>, Wrong> {
        expect_type(&request.type_url)?;
        let first = !std::mem::replace(&mut self.begun, true);
        if first && request.resource_names_subscribe.is_empty() {
            self.wanted.all();
        }
        for name in request.resource_names_subscribe {
            if name == ALL {
                self.wanted.all();
            } else {
                self.wanted.add(name)?;
            }
        }
        for name in request.resource_names_unsubscribe {
            if name == ALL {
                self.wanted.not_all();
            } else {
                self.wanted.remove(&name);
            }
        }
        if first {
            for (name, version) in request.initial_resource_versions {
                self.wanted.has(name, &version);
            }
        }
        Ok(Step { reply: self.changed(view), refused: refusal(request.error_detail) })
    }

    fn changed(&mut self, view: &View) -> Option<DeltaDiscoveryResponse> {
        if !self.begun {
            return None;
        }
        let due = self.wanted.due(view);
        if due.found.is_empty() && due.absent.is_empty() {
            return None;
        }
        self.nonce += 1;
        let resources = due.found.into_iter().map(|(name, resource)| Versioned {
            name: name.to_owned(),
            version: resource.version.to_string(),
            resource: Some(resource.body.clone()),
            ..Default::default()
        });
        Some(DeltaDiscoveryResponse {
            resources: resources.collect(),
            type_url: type_url(),
            removed_resources: due.absent,
            nonce: self.nonce.to_string(),
            ..Default::default()
        })
    }
}

/// A request without a type means this service's.
fn expect_type(asked: &str) -> Result<(), Wrong> {
    if asked.is_empty() || asked == type_url() { Ok(()) } else { Err(Wrong::Type) }
}

fn refusal(detail: Option<rpc::Status>) -> Option<String> {
    detail.map(|status| status.message)
}
