//! The end of a run.

use restate_sdk::context::RequestTarget;
use restate_sdk::prelude::*;
use tool_core::Event;
use tool_core::run::{RunErrorKind, StopReason};
use tool_core::store::CompactionSummary;

use super::publish::{end_events, last_event};
use super::state::{Drive, Setup};
use crate::names::{Added, Ended, RunFailure, Stop, Waiting, conversations_service};
use crate::signals::{FIRST_STOP, WAITING, part_key, stop};

pub(super) const CANCELLED_MESSAGE: &str = "the run was cancelled";

impl<'c> Drive<'c> {
    /// Publishes the end of the run.
    pub(super) fn finish(mut self) -> Ended {
        self.take_recorded();
        let Self { setup, ctx, run, round, failure, conversation, events, mut unpublished, .. } = self;
        let messages =
            run.engine_view().added_to_conversation().filter(|_| conversation.is_some()).map(<[_]>::to_vec);
        let summary = run.engine_view().stored_conversation_len().zip(CompactionSummary::of_run(&run));
        let ended = match run.finish() {
            Ok(answer) => Ended::Answer(answer),
            Err(error) => {
                let reason = match error.kind() {
                    RunErrorKind::Stopped(reason) if failure.is_none() => Some(reason.clone()),
                    _ => None,
                };
                Ended::Failed(RunFailure {
                    reason,
                    message: failure.unwrap_or_else(|| error.to_string()),
                    tool_executions: error.tool_executions().to_vec(),
                    undo_executions: error.run().undo_executions().to_vec(),
                })
            }
        };
        if events.is_some() {
            unpublished.push(last_event(&ended, setup.settings.max_bytes));
            end_events(setup, ctx, unpublished);
        }
        let ended = store_parts(ctx, ended, setup.settings.max_bytes);
        let added = messages.map(|messages| match &ended {
            Ended::Parts(parts) => {
                Added { messages: Vec::new(), stored: Some((ctx.key().to_owned(), *parts)), summary }
            }
            _ => Added { messages, stored: None, summary },
        });
        if round == 0 {
            ctx.resolve_promise(FIRST_STOP, Json(added));
        } else if let (Some(added), Some(conversation)) = (added, conversation) {
            let target =
                RequestTarget::object(conversations_service(&setup.name), conversation.as_str(), "append");
            drop(ctx.request::<_, ()>(target, Json(added)).send());
        }
        ctx.set(WAITING, Json(Waiting { round, has_ended: true, ..Waiting::default() }));
        ctx.resolve_promise(&stop(round), Json(Stop::Ended));
        ended
    }
}

/// Stores the end of a run beside it if it is larger than a value can be.
pub(super) fn store_parts(ctx: &WorkflowContext<'_>, ended: Ended, max_bytes: usize) -> Ended {
    let json = serde_json::to_vec(&ended).unwrap_or_default();
    if json.len() <= max_bytes {
        return ended;
    }
    let mut parts = 0;
    for part in json.chunks(max_bytes) {
        ctx.set(&part_key(parts), part.to_vec());
        parts += 1;
    }
    Ended::Parts(parts)
}

/// Ends a run before its first turn.
pub(super) fn never_started(
    setup: &Setup,
    ctx: &WorkflowContext<'_>,
    publishes: bool,
    message: &str,
) -> Ended {
    if publishes {
        end_events(setup, ctx, vec![Event::Failed(message.to_owned()).at(0)]);
    }
    let reason = (message == CANCELLED_MESSAGE).then_some(StopReason::Cancelled);
    ctx.resolve_promise(FIRST_STOP, Json(None::<Added>));
    ctx.resolve_promise(&stop(0), Json(Stop::Ended));
    let (tool_executions, undo_executions) = (Vec::new(), Vec::new());
    Ended::Failed(RunFailure { reason, message: message.to_owned(), tool_executions, undo_executions })
}
