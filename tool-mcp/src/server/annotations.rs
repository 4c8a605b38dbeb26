//! Annotations that follow from the options of a tool.

use rmcp::model::ToolAnnotations;
use tool_core::model::ToolDefinition;

/// Returns the annotations of a tool, or `None` if no option implies any.
pub(super) fn tool_annotations(definition: &ToolDefinition) -> Option<ToolAnnotations> {
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
    // Last, so that it overrides the others: hosts may call harmless tools without asking.
    if policy.needs_approval {
        hints = hints.read_only(false).destructive(true);
    }
    (hints != ToolAnnotations::new()).then_some(hints)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tool_core::model::ToolPolicy;

    use super::*;

    #[test]
    fn follows_the_most_careful_option() {
        type Setter = fn(&mut ToolPolicy);
        let (pure, approval, once): (Setter, Setter, Setter) = (
            |policy| policy.pure = true,
            |policy| policy.needs_approval = true,
            |policy| {
                policy.at_most_once = true;
            },
        );
        let table: [(&[Setter], bool, Value); 7] = [
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
        for (options, has_undo, expected) in table {
            let mut policy = ToolPolicy::default();
            options.iter().for_each(|set| set(&mut policy));
            policy.exclusive = true;
            policy.attempts = 3;
            let mut definition = ToolDefinition::new("a").with_policy(policy);
            if has_undo {
                definition = definition.with_undo("b");
            }
            assert_eq!(serde_json::to_value(tool_annotations(&definition)).unwrap(), expected);
        }
    }
}
