//! A separate server for tests that would disturb others.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::variable;

/// A server for one request at a time, with a context too long to fill during a test. It stops when it is dropped.
pub(crate) struct OwnServer {
    process: Child,
    pub(crate) base_url: String,
}

impl OwnServer {
    /// Starts the command that the environment specifies. It exits when its standard input closes.
    pub(crate) fn start() -> Self {
        let command = variable("INFERENCE_SERVER");
        let mut words = command.split('\t');
        let mut process = Command::new(words.next().unwrap())
            .args(words)
            .args(["1", "131072"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let base_url = line.trim().to_owned();
        assert!(base_url.starts_with("http://"), "the server did not start");
        Self { process, base_url }
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
