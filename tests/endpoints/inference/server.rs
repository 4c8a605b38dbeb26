//! A server of one's own, for what would disturb others.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::variable;

/// A server for one request at a time, with room for more than a test can wait for. It is stopped when it is dropped.
pub(crate) struct OwnServer {
    process: Child,
    pub(crate) base_url: String,
}

impl OwnServer {
    /// Starts what the environment says, which ends with its input.
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

    /// Ends it at once, in the middle of whatever it does.
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
