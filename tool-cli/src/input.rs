//! The input of a chat: lines and keys.

use std::io::{self, BufRead};
use std::sync::mpsc as blocking;
use std::thread;

use console::{Key, Term};
use tokio::sync::mpsc;

/// Lines and keys, read in a thread of their own when they are asked for. The thread does not delay the end of the program.
pub(crate) struct Input {
    requests: blocking::Sender<Request>,
    replies: mpsc::Receiver<io::Result<Option<String>>>,
    /// The user sees what is typed.
    pub(crate) is_echoed: bool,
}

enum Request {
    Line,
    Secret,
    Key,
}

impl Input {
    /// Reads standard input. Keys need no Enter if it is a terminal.
    pub(crate) fn terminal() -> Self {
        let term = Term::stdout();
        if !(console::user_attended() && io::IsTerminal::is_terminal(&io::stdin())) {
            return Self::lines(io::BufReader::new(io::stdin()));
        }
        Self::new(true, move |request| match request {
            Request::Line => read_line(&mut io::stdin().lock()),
            // Fails for Ctrl-C.
            Request::Secret => Ok(term.read_secure_line().ok()),
            Request::Key => Ok(match term.read_key_raw()? {
                Key::Char(key) => Some(key.to_string()),
                Key::CtrlC => None,
                _ => Some(String::new()),
            }),
        })
    }

    /// Reads lines; a key is a line.
    pub(crate) fn lines(mut input: impl BufRead + Send + 'static) -> Self {
        Self::new(false, move |_| read_line(&mut input))
    }

    fn new(
        is_echoed: bool,
        mut read: impl FnMut(Request) -> io::Result<Option<String>> + Send + 'static,
    ) -> Self {
        let (requests, incoming) = blocking::channel();
        let (outgoing, replies) = mpsc::channel(1);
        thread::spawn(move || {
            while let Ok(request) = incoming.recv() {
                if outgoing.blocking_send(read(request)).is_err() {
                    break;
                }
            }
        });
        Self { requests, replies, is_echoed }
    }

    /// Reads a line without its end. `None` at the end of the input.
    pub(crate) async fn line(&mut self) -> io::Result<Option<String>> {
        self.read(Request::Line).await
    }

    /// Reads a line that a terminal does not show. `None` at the end of the input.
    pub(crate) async fn secret(&mut self) -> io::Result<Option<String>> {
        self.read(Request::Secret).await
    }

    /// Reads a key. `None` at the end of the input and for Ctrl-C.
    pub(crate) async fn key(&mut self) -> io::Result<Option<String>> {
        self.read(Request::Key).await
    }

    async fn read(&mut self, request: Request) -> io::Result<Option<String>> {
        if self.requests.send(request).is_err() {
            return Ok(None);
        }
        self.replies.recv().await.unwrap_or(Ok(None))
    }
}

fn read_line(input: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = String::new();
    let read = input.read_line(&mut line)?;
    Ok((read > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned()))
}
