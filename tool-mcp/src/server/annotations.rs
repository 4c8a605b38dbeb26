//! What the words of a tool tell a host.

use rmcp::model::ToolAnnotations;
use tool_core::ToolDefinition;

/// The hints that a tool's words give; none if they say nothing.
pub(super) fn of(definition: &ToolDefinition) -> Option<ToolAnnotations> {
    let policy = definition.policy();
    let mut hints = ToolAnnotations::new();
    if policy.pure {
        hints = hints.read_only(true).destructive(false).idempotent(true).open_world(false);
    }
    if definition.undo().is_some() {
        hints = hints.read_only(false).destructive(false);
    }
    if policy.at_most_once {
        hints = hints.read_only(false).idempotent(false);
    }
    // Behind the others: a host that calls by itself what is said to do no harm must not be told so.
    if policy.needs_approval {
        hints = hints.read_only(false).destructive(true);
    }
    (hints != ToolAnnotations::new()).then_some(hints)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tool_core::ToolPolicy;

    use super::*;

    #[test]
    fn hints() {
        type Word = fn(&mut ToolPolicy);
        let (pure, approval, once): (Word, Word, Word) = (
            |policy| policy.pure = true,
            |policy| policy.needs_approval = true,
            |policy| {
                policy.at_most_once = true;
            },
        );
        let table: [(&[Word], bool, Value); 7] = [
            (&[], false, Value::Null),
            (
                &[pure],
                false,
                json!({ "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false }),
            ),
            (&[approval], false, json!({ "readOnlyHint": false, "destructiveHint": true })),
            (&[], true, json!({ "readOnlyHint": false, "destructiveHint": false })),
            (&[once], false, json!({ "readOnlyHint": false, "idempotentHint": false })),
            (&[approval], true, json!({ "readOnlyHint": false, "destructiveHint": true })),
            (
                &[pure, approval],
                false,
                json!({ "readOnlyHint": false, "destructiveHint": true, "idempotentHint": true, "openWorldHint": false }),
            ),
        ];
        for (words, undoes, expected) in table {
            let mut policy = ToolPolicy::default();
            words.iter().for_each(|word| word(&mut policy));
            policy.exclusive = true;
            policy.attempts = 3;
            let mut definition = ToolDefinition::new("a").with_policy(policy);
            if undoes {
                definition = definition.with_undo("b");
            }
            assert_eq!(serde_json::to_value(of(&definition)).unwrap(), expected);
        }
    }
}
