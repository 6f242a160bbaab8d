//! A real API server as these tests use it: namespaces of their own, clients through proxies, and its end and return.

use std::{
    fmt::Debug,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use k8s_openapi::{
    api::core::v1::Namespace, apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, Config, Resource,
    api::{ListParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::de::DeserializeOwned;

use crate::{apiserver::ApiServer, eventually, proxy::Proxy};

/// A namespace that only one test knows.
pub async fn namespace(client: &Client) -> String {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(format!("kinference-test-{:016x}", rand::random::<u64>()));
    let made = Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await;
    made.unwrap().metadata.name.unwrap()
}

/// Makes the API server serve a kind, and waits until it does.
pub async fn install<K>(client: &Client, definition: &CustomResourceDefinition)
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    Api::all(client.clone()).create(&PostParams::default(), definition).await.unwrap();
    let kind: Api<K> = Api::all(client.clone());
    eventually("the kind is served", async || kind.list(&ListParams::default()).await.ok()).await;
}

/// A client of its own behind a proxy of its own.
pub async fn proxied(cluster: &ApiServer) -> (Client, Proxy) {
    let kubeconfig = Kubeconfig::read_from(&cluster.kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let to = (config.cluster_url.host().unwrap(), config.cluster_url.port_u16().unwrap_or(443));
    let to = tokio::net::lookup_host(to).await.unwrap().next().unwrap();
    let proxy = Proxy::start(to).await;
    config.cluster_url = format!("https://{}", proxy.addr).parse().unwrap();
    (Client::try_from(config).unwrap(), proxy)
}

/// The process of an API server of our own. Its etcd lives on while it is away.
pub struct Process {
    pid_file: PathBuf,
    command: Vec<String>,
    addr: SocketAddr,
    again: Option<Child>,
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.again.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

impl Process {
    pub fn of(cluster: &ApiServer) -> Self {
        let dir = cluster.kubeconfig.parent().and_then(Path::parent).unwrap();
        let pid_file = dir.join("apiserver.pid");
        let pid = fs::read_to_string(&pid_file).unwrap();
        let command = fs::read_to_string(format!("/proc/{}/cmdline", pid.trim())).unwrap();
        let command: Vec<String> = command.split_terminator('\0').map(Into::into).collect();
        let port = command.iter().skip_while(|word| *word != "--secure-port").nth(1).unwrap();
        let addr = SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()));
        Self { pid_file, command, addr, again: None }
    }

    /// At once, as the kernel does when memory is short.
    pub fn kill(&self) {
        let pid = fs::read_to_string(&self.pid_file).unwrap();
        assert!(Command::new("kill").args(["-9", pid.trim()]).status().unwrap().success());
    }

    /// On the same port, with the same data.
    pub async fn restart(&mut self) {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).current_dir(self.pid_file.parent().unwrap());
        let log = fs::File::create(self.pid_file.with_extension("log2")).unwrap();
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        fs::write(&self.pid_file, child.id().to_string()).unwrap();
        self.again = Some(child);
        eventually("the API server is back", async || tokio::net::TcpStream::connect(self.addr).await.ok())
            .await;
    }
}
