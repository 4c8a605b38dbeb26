//! What outlasts a life and what ends it: the log of effects, and a fuse.

use std::fs::{File, OpenOptions};
use std::future::{pending, poll_fn};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::task::Poll;

use tool_core::{ToolCall, ToolContext};

/// How a life ends when its fuse is burnt.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum End {
    /// The process is killed, at once.
    Process,
    /// The future is dropped by who polls it; nothing that it does until then has an effect.
    Future,
}

/// What the tools, the model and the stores of one life share.
#[derive(Clone)]
pub(crate) struct World(Arc<Inner>);

struct Inner {
    /// How many more places the life passes.
    fuse: AtomicI64,
    is_over: AtomicBool,
    end: End,
    log: PathBuf,
}

impl World {
    pub(crate) fn new(fuse: i64, end: End, log: &Path) -> Self {
        let (fuse, is_over) = (AtomicI64::new(fuse), AtomicBool::new(false));
        Self(Arc::new(Inner { fuse, is_over, end, log: log.to_owned() }))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::SeqCst)
    }

    /// A place where the life may end.
    pub(crate) fn pass_now(&self) {
        if self.0.fuse.fetch_sub(1, Ordering::SeqCst) > 0 {
            return;
        }
        if self.0.end == End::Process {
            std::process::abort();
        }
        self.0.is_over.store(true, Ordering::SeqCst);
    }

    /// A place where the life may end, or another future go on.
    pub(crate) async fn pass(&self) {
        self.pass_now();
        if self.is_over() {
            return pending().await;
        }
        let mut has_yielded = false;
        poll_fn(|context| {
            if has_yielded {
                return Poll::Ready(());
            }
            has_yielded = true;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Notes that a call has had its effect; it is on the disk when this is over.
    pub(crate) fn take_effect(&self, call: &ToolCall, context: &ToolContext) {
        self.pass_now();
        if self.is_over() {
            return;
        }
        let key = context.idempotency_key().unwrap();
        let line = format!("{key} {} {} {}\n", call.id, context.attempt(), call.name);
        let mut log: File = OpenOptions::new().create(true).append(true).open(&self.0.log).unwrap();
        log.write_all(line.as_bytes()).unwrap();
        if self.0.end == End::Process {
            log.sync_all().unwrap();
        }
        self.pass_now();
    }
}

/// One line of the log.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Effect {
    pub(crate) key: String,
    pub(crate) call_id: String,
    pub(crate) attempt: u32,
    pub(crate) tool: String,
}

/// What had its effect so far, in order.
pub(crate) fn effects(log: &Path) -> Vec<Effect> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let read = |line: &str| {
        let words: Vec<_> = line.split(' ').collect();
        let [key, call_id, attempt, tool] = words[..] else { panic!("{line}") };
        let attempt = attempt.parse().unwrap();
        Effect { key: key.into(), call_id: call_id.into(), attempt, tool: tool.into() }
    };
    text.lines().map(read).collect()
}

/// Numbers that look random, and are the same for the same seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below a limit; splitmix64.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % limit
    }
}
