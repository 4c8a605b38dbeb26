//! A server that is a child process.

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

/// Takes the lines that the server writes to its stderr.
pub(super) type LineHook = Arc<dyn Fn(&str) + Send + Sync>;

/// How long a process may take to end when its input has ended.
const GRACE: Duration = Duration::from_secs(2);

/// The longest line of stderr that is kept, in bytes.
const LONGEST_LINE: usize = 1 << 16;

/// The variables that every child gets, if this process has them: those that the official SDKs hand on. None of them is
/// a secret, and hardly a program starts without them.
#[cfg(not(windows))]
const HANDED_ON: [&str; 6] = ["HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER"];
#[cfg(windows)]
const HANDED_ON: [&str; 12] = [
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

/// How to start the process.
#[derive(Clone)]
pub(super) struct Process {
    pub(super) program: OsString,
    pub(super) args: Vec<OsString>,
    pub(super) env: BTreeMap<OsString, OsString>,
    pub(super) directory: Option<PathBuf>,
    pub(super) on_stderr: Option<LineHook>,
}

/// The pipes of a process that runs.
pub(super) struct Pipes {
    pub(super) reader: Pin<Box<dyn AsyncRead + Send>>,
    pub(super) writer: Pin<Box<dyn AsyncWrite + Send>>,
}

impl Process {
    pub(super) fn new(program: &OsStr) -> Self {
        Self {
            program: program.to_owned(),
            args: Vec::new(),
            env: BTreeMap::new(),
            directory: None,
            on_stderr: None,
        }
    }

    /// Starts the process. It is ended when its input is dropped.
    pub(super) fn start(&self) -> io::Result<Pipes> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).env_clear().kill_on_drop(true);
        command.envs(HANDED_ON.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.envs(&self.env);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        let stderr = if self.on_stderr.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr).spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("its input or output was taken"));
        };
        if let (Some(stderr), Some(on_stderr)) = (child.stderr.take(), self.on_stderr.clone()) {
            tokio::spawn(hand_on(stderr, on_stderr));
        }
        let (ends, ended) = oneshot::channel();
        tokio::spawn(see_to_its_end(child, ended));
        let writer = Input { stdin: Box::pin(stdin), _ends: ends };
        Ok(Pipes { reader: Box::pin(stdout), writer: Box::pin(writer) })
    }
}

/// Waits for the process when its input has ended, and kills it if it stays: none is left behind, and none as a zombie.
///
/// If the runtime ends before, the process is killed with this future.
async fn see_to_its_end(mut child: Child, mut input_ends: oneshot::Receiver<()>) {
    tokio::select! {
        _ = child.wait() => return,
        _ = &mut input_ends => {}
    }
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

async fn hand_on(stderr: ChildStderr, on_stderr: LineHook) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        let Ok(available) = reader.fill_buf().await else { return };
        let is_over = available.is_empty();
        let end = available.iter().position(|byte| *byte == b'\n');
        let piece = &available[..end.unwrap_or(available.len())];
        let room = LONGEST_LINE - line.len();
        line.extend_from_slice(&piece[..piece.len().min(room)]);
        let consumed = piece.len() + usize::from(end.is_some());
        reader.consume(consumed);
        if end.is_some() || (is_over && !line.is_empty()) {
            on_stderr(String::from_utf8_lossy(line.trim_ascii_end()).as_ref());
            line.clear();
        }
        if is_over {
            return;
        }
    }
}

/// The input of the process; that it is dropped ends the process.
struct Input {
    stdin: Pin<Box<ChildStdin>>,
    _ends: oneshot::Sender<()>,
}

impl AsyncWrite for Input {
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
