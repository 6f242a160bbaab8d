//! The end and the return of an API server of our own.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command},
    time::Duration,
};

use tokio::{
    net::TcpStream,
    time::{Instant, sleep},
};

use crate::apiserver::ApiServer;

/// How long its start may take.
const PATIENCE: Duration = Duration::from_secs(60);

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
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(self.addr).await.is_err() {
            assert!(Instant::now() < deadline, "the API server does not come back");
            sleep(Duration::from_millis(10)).await;
        }
    }
}
