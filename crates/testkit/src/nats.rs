//! A real NATS server for tests, on a port of its own, with its storage in a folder.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub struct Server {
    child: Child,
    /// Its arguments beside port and storage.
    more: Vec<String>,
    folder: PathBuf,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Server {
    /// With JetStream, its storage in `folder`.
    pub fn start(folder: &Path) -> Self {
        Self::with(folder, &["-js"])
    }

    pub fn with(folder: &Path, more: &[&str]) -> Self {
        let more: Vec<String> = more.iter().map(|&one| one.to_owned()).collect();
        let child = spawn(folder, &more, -1);
        let mut server = Self { child, more, folder: folder.to_owned(), port: 0 };
        server.port = server.listening();
        server
    }

    /// Servers that are one cluster, each with its storage in a folder of its own below `folder`.
    pub fn cluster(folder: &Path, servers: usize) -> Vec<Self> {
        let free: Vec<TcpListener> =
            (0..servers).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let ports: Vec<u16> = free.iter().map(|listener| listener.local_addr().unwrap().port()).collect();
        drop(free);
        let routes: Vec<String> = ports.iter().map(|port| format!("\"nats://127.0.0.1:{port}\"")).collect();
        let start = |(number, port): (usize, &u16)| {
            let folder = folder.join(format!("n{number}"));
            std::fs::create_dir_all(&folder).unwrap();
            let file = folder.join("server.conf");
            let config = format!(
                "server_name: n{number}\njetstream {{}}\n\
                 cluster {{ name: studio, listen: \"127.0.0.1:{port}\", routes: [{}] }}",
                routes.join(", ")
            );
            std::fs::write(&file, config).unwrap();
            Self::with(&folder, &["-c", file.to_str().unwrap()])
        };
        ports.iter().enumerate().map(start).collect()
    }

    /// Waits until it listens; its port.
    fn listening(&self) -> u16 {
        // It writes the file once it listens.
        let file = ports(&self.folder).join(format!("nats-server_{}.ports", self.child.id()));
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            let told: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            if let Some(address) = told["nats"][0].as_str() {
                return address.rsplit(':').next().unwrap().parse().unwrap();
            }
            assert!(Instant::now() < until, "nats-server does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn address(&self, prefix: &str) -> String {
        format!("nats://127.0.0.1:{}/{prefix}", self.port)
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// As a crash of its machine would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again, on the same port and storage.
    pub fn restart(&mut self) {
        self.kill();
        self.child = spawn(&self.folder, &self.more, self.port.into());
        self.listening();
    }
}

fn ports(folder: &Path) -> PathBuf {
    folder.join("ports")
}

fn spawn(folder: &Path, more: &[String], port: i32) -> Child {
    let found = ["/usr/sbin/nats-server", "/usr/local/bin/nats-server", "/usr/bin/nats-server"];
    let program = found.iter().find(|path| Path::new(path).exists());
    let program = program.expect("no nats-server: run scripts/install-nats.sh");
    std::fs::create_dir_all(ports(folder)).unwrap();
    let mut command = Command::new(program);
    command.args(["-a", "127.0.0.1", "-p", &port.to_string(), "-sd"]).arg(folder.join("jetstream"));
    command.arg("--ports_file_dir").arg(ports(folder)).args(more);
    let log = std::fs::File::create(folder.join("server.log")).unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap()
}
