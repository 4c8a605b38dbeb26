//! Calls that come again: ids that were there before, and calls of the same tool with the same arguments.

use super::ToolExecution;
use super::ending::Ending;
use super::state::{Run, Stage};
use crate::{AssistantMessage, Message, ToolCall, ToolError};

impl Run {
    /// Gives an id of its own to every call whose id is blank or was there before: an id ties a result to its call.
    /// Gives the outcomes of the calls that are known by their ids already, by position.
    ///
    /// Two calls of one reply are two calls, whatever their ids. An id of an earlier turn that comes again names the
    /// call of that turn: with the same arguments its outcome stands, with others the call is refused. But some servers
    /// count their calls from zero in every reply, so an id that is such a count names nothing.
    pub(super) fn name_calls(&self, message: &mut AssistantMessage) -> Vec<(usize, ToolExecution)> {
        let mut known = Vec::new();
        // Those that were given another id.
        let mut replaced: Vec<String> = Vec::new();
        for position in 0..message.tool_calls.len() {
            let (earlier, rest) = message.tool_calls.split_at_mut(position);
            let call = &mut rest[0];
            let is_of_this_reply = |id: &str| earlier.iter().any(|call| call.id == id);
            let is_taken = |id: &str| is_of_this_reply(id) || id.trim().is_empty() || self.has_call(id);
            if is_taken(&call.id) {
                let is_second = is_of_this_reply(&call.id) || replaced.contains(&call.id);
                let again = !is_second && !is_count(&call.id);
                let before = self.tool_executions.iter().find(|one| one.call().id == call.id);
                let before = before.filter(|_| again).cloned();
                let mut id = format!("call_{}_{position}", self.turns);
                while is_taken(&id) {
                    id.push('_');
                }
                replaced.push(std::mem::replace(&mut call.id, id));
                known.extend(before.map(|before| {
                    if before.is_of(call) {
                        (position, ToolExecution::new(call.clone(), before.result().clone()).of_record())
                    } else {
                        let why = "its id is that of an earlier call with other arguments; give each call an id of its own";
                        (position, ToolExecution::new(call.clone(), Err(ToolError::not_made(why))))
                    }
                }));
            }
        }
        known
    }

    fn has_call(&self, id: &str) -> bool {
        self.messages.iter().any(|message| match message {
            Message::Assistant(message) => message.tool_calls.iter().any(|call| call.id == id),
            _ => false,
        })
    }

    /// Tells the model of calls that it makes again and again, in place of making them; ends the run if that does not
    /// help.
    pub(super) fn tell_of_repeated_calls(&mut self) {
        let limit = self.settings.limits.repeated_calls.max(1) as usize;
        let calls = self.calls();
        let times_before = |(position, call): (usize, &ToolCall)| {
            let is_same = |other: &&ToolCall| other.name == call.name && other.arguments == call.arguments;
            let before = self.tool_executions.iter().filter(|one| one.is_of(call)).count();
            (position, before + calls[..position].iter().filter(is_same).count())
        };
        let repeated = calls.iter().enumerate().map(times_before).filter(|(_, before)| *before >= limit);
        let mut ending = None;
        for (position, before) in repeated.collect::<Vec<_>>() {
            let Some(call) = self.calls().get(position).cloned() else { return };
            if before >= limit.saturating_mul(2) {
                ending = Some(Ending::Repeated(call.name.clone()));
            }
            let why = format!(
                "it was made {before} times with these arguments already; \
                 go on with what it gave, or call with other arguments"
            );
            let told = ToolExecution::new(call, Err(ToolError::not_made(&why)));
            if let Stage::Calling(turn) = &mut self.stage
                && let Some(standing) = turn.calls.get_mut(position)
            {
                standing.outcome.get_or_insert(told);
            }
        }
        if let Some(ending) = ending {
            self.end(ending);
        }
    }
}

/// An id made of words and small numbers only, such as `0`, `call_1` or `functions.sum:0`.
fn is_count(id: &str) -> bool {
    let is_number = |piece: &str| piece.len() <= 3 && piece.bytes().all(|byte| byte.is_ascii_digit());
    let is_word = |piece: &str| piece.chars().all(char::is_alphabetic);
    let mut pieces = id.split(|c: char| !c.is_alphanumeric()).filter(|piece| !piece.is_empty()).peekable();
    pieces.clone().any(is_number) && pieces.all(|piece| is_number(piece) || is_word(piece))
}

#[cfg(test)]
mod tests {
    use super::is_count;

    #[test]
    fn ids_that_are_counts() {
        for id in ["0", "12", "call_0", "call-7", "functions.get_weather:0", "tool_call_3", "call_1_0"] {
            assert!(is_count(id), "{id}");
        }
        for id in [
            "",
            "a",
            "call_abc",
            "call_abc123",
            "call_9xT2",
            "f4f1d9c0-0d65-4d1b",
            "call_17639",
            "toolu_01A0",
        ] {
            assert!(!is_count(id), "{id}");
        }
    }
}
