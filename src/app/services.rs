//! What the gRPC listener serves, and the tasks behind it.

use std::sync::Arc;

use rand::{SeedableRng, rngs::StdRng};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Config,
    kubernetes::Client,
    observe::Metrics,
    pipeline::{Pipeline, Rooms},
    prompt::BodyBudget,
    roster::Roster,
    serve::{
        Services,
        eds::Endpoints,
        ext_proc::{ExtProc, Parts, deciding, publishing, telling},
        fleet::Fleet,
        picker::{Picker, PickerParts},
        rate_limiter::RateLimits,
        token_review::TokenReviews,
    },
};

use super::{
    App,
    tasks::{Tasks, never},
};

/// Services that are served only when configured.
#[derive(Default)]
pub(super) struct Optional {
    token_reviews: Option<TokenReviews>,
    rate_limits: Option<RateLimits>,
}

impl Optional {
    /// Those that `config` enables; token review needs a client.
    pub(super) fn build(config: &Config, metrics: &Metrics, client: Option<&Client>) -> Self {
        let client = client.filter(|_| config.token_review.enabled);
        let reviews =
            |client: &Client| TokenReviews::new(client.clone(), config.token_review.clone(), metrics);
        Self {
            token_reviews: client.map(reviews),
            rate_limits: config.rate_limit.enabled.then(|| RateLimits::new(metrics)),
        }
    }
}

impl App {
    /// Every service of the gRPC listener over that pipeline, to be served until `stop`.
    pub(super) fn services(
        &mut self,
        pipeline: Pipeline,
        tasks: &mut Tasks,
        stop: &CancellationToken,
    ) -> Services {
        let (ext_proc, picker) = self.front_doors(Arc::new(pipeline));
        let fleet = Fleet::new(self.roster(), stop.clone());
        let endpoints = Endpoints::new(self.registry.clone(), &self.metrics, stop.clone());
        let (picks, views, assignments) = (picker.clone(), fleet.clone(), endpoints.clone());
        tasks.spawn(async move { ("expiry of picks", never(picks.run_expiry().await)) });
        tasks.spawn(async move { ("fleet view", never(views.run().await)) });
        tasks.spawn(async move { ("endpoints view", never(assignments.run().await)) });
        let mut services = Services::default()
            .with_routing(ext_proc.into_server())
            .with_routing(picker.into_server())
            .with(fleet.into_server())
            .with(endpoints.into_server());
        let Optional { token_reviews, rate_limits } = std::mem::take(&mut self.optional);
        if let Some(reviews) = token_reviews {
            services = services.with(reviews.into_server());
        }
        if let Some(limits) = rate_limits {
            services = services.with(limits.into_server());
        }
        services
    }

    /// What is shown of the fleet.
    pub(super) fn roster(&self) -> Roster {
        Roster {
            registry: self.registry.clone(),
            index: self.index.clone(),
            load: self.load.clone(),
            mock: self.config.mock_mode,
        }
    }

    /// The pipeline, over what is known of the fleet.
    pub(super) fn pipeline(&self) -> Pipeline {
        let rooms = Rooms {
            registry: self.registry.clone(),
            index: self.index.clone(),
            load: self.load.clone(),
            tokenizers: self.tokenizers.clone(),
            decisions: self.decisions.clone(),
        };
        Pipeline::new(&self.config, rooms, &self.metrics)
    }

    /// Both doors to the one pipeline, over one budget of bodies.
    fn front_doors(&self, pipeline: Arc<Pipeline>) -> (ExtProc, Picker) {
        let budget = BodyBudget::new(self.config.body, &self.metrics);
        let picker = PickerParts {
            pipeline: pipeline.clone(),
            budget: budget.clone(),
            observation_ttl: self.config.observation_ttl,
            replica: self.replica.clone(),
            rng: StdRng::from_os_rng(),
        };
        let parts = Parts {
            models: Some(publishing(pipeline.clone())),
            refused: telling(pipeline.clone()),
            decide: deciding(pipeline),
            budget,
            config: self.config.ext_proc.clone(),
            id_seed: rand::random(),
        };
        (ExtProc::new(parts, &self.metrics), Picker::new(picker, &self.metrics))
    }
}

/// Names this process among the replicas: by its host where that is known, and by chance, for two on one host.
pub(super) fn replica() -> Arc<str> {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "kinference".to_owned());
    format!("{host}-{:08x}", rand::random::<u32>()).into()
}
