//! A server that runs as a child process.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, Command};
use tokio::sync::oneshot;

/// Receives the lines that the server writes to its stderr.
pub(super) type LineHook = Arc<dyn Fn(&str) + Send + Sync>;

/// How long a process may take to exit after its input was closed.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest line of stderr that is passed on, in bytes.
const MAX_STDERR_LINE_BYTES: usize = 1 << 16;

/// The variables that every child inherits, as in the official SDKs. None of them is a secret, and most programs need
/// them to start.
#[cfg(not(windows))]
const INHERITED_VARIABLES: [&str; 6] = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];
#[cfg(windows)]
const INHERITED_VARIABLES: [&str; 12] = [
    "APPDATA",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATH",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "USERNAME",
    "USERPROFILE",
];

/// How to start a process.
#[derive(Clone)]
pub(super) struct ProcessConfig {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) env: BTreeMap<OsString, OsString>,
    pub(super) directory: Option<PathBuf>,
    pub(super) on_stderr: Option<LineHook>,
}

/// The two directions of a connection.
pub(super) struct Pipes {
    pub(super) reader: Pin<Box<dyn AsyncRead + Send>>,
    pub(super) writer: Pin<Box<dyn AsyncWrite + Send>>,
}

impl ProcessConfig {
    pub(super) fn new(program: &OsStr) -> Self {
        Self {
            program: program.to_owned(),
            args: Vec::new(),
            env: BTreeMap::new(),
            directory: None,
            on_stderr: None,
        }
    }

    /// Starts the process. Dropping its input ends it.
    pub(super) fn start(&self) -> io::Result<Pipes> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).env_clear().kill_on_drop(true);
        command
            .envs(INHERITED_VARIABLES.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.envs(&self.env);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let stderr = if self.on_stderr.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("its stdin or stdout is not available"));
        };
        if let (Some(stderr), Some(on_stderr)) = (child.stderr.take(), self.on_stderr.clone()) {
            tokio::spawn(forward_stderr(stderr, on_stderr));
        }
        let (dropped, closed) = oneshot::channel();
        tokio::spawn(reap(child, closed));
        let writer = ChildInput { stdin: Box::pin(stdin), _dropped: dropped };
        Ok(Pipes { reader: Box::pin(stdout), writer: Box::pin(writer) })
    }
}

/// Waits for the process after its input was closed, and kills it if it does not exit, so that no process and no zombie
/// remains.
///
/// If the runtime shuts down first, dropping this future kills the process.
async fn reap(mut child: Child, mut input_closed: oneshot::Receiver<()>) {
    tokio::select! {
        _ = child.wait() => return,
        _ = &mut input_closed => {}
    }
    if tokio::time::timeout(SHUTDOWN_TIMEOUT, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

async fn forward_stderr(stderr: ChildStderr, on_stderr: LineHook) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        let Ok(available) = reader.fill_buf().await else { return };
        let is_end = available.is_empty();
        let end = available.iter().position(|byte| *byte == b'\n');
        let chunk = &available[..end.unwrap_or(available.len())];
        let room = MAX_STDERR_LINE_BYTES - line.len();
        line.extend_from_slice(&chunk[..chunk.len().min(room)]);
        let consumed = chunk.len() + usize::from(end.is_some());
        reader.consume(consumed);
        if end.is_some() || (is_end && !line.is_empty()) {
            on_stderr(String::from_utf8_lossy(line.trim_ascii_end()).as_ref());
            line.clear();
        }
        if is_end {
            return;
        }
    }
}

/// The stdin of a process, which signals `reap` when it is dropped.
struct ChildInput {
    stdin: Pin<Box<ChildStdin>>,
    _dropped: oneshot::Sender<()>,
}

impl AsyncWrite for ChildInput {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<io::Result<usize>> {
        self.stdin.as_mut().poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        self.stdin.as_mut().poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<io::Result<()>> {
        self.stdin.as_mut().poll_shutdown(context)
    }
}
