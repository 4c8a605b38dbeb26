//! Warnings about requests that are changed so that the endpoint accepts them.

use std::fmt;
use std::sync::Arc;

use tool_core::model::{ChatRequest, ToolChoice, ToolDefinition};

use crate::endpoint::Endpoint;

/// A change to a request that was necessary for the endpoint to accept it: see
/// [`on_warning`](crate::OpenAiBuilder::on_warning).
#[derive(Debug)]
#[non_exhaustive]
pub enum Warning<'a> {
    /// The description of a tool was longer than [allowed](Endpoint::max_description_chars) and was truncated.
    #[non_exhaustive]
    DescriptionTruncated {
        /// The name of the tool.
        tool: &'a str,
        /// The number of characters that were removed.
        removed_chars: usize,
    },
    /// The endpoint does not support a field of the request, so it was omitted.
    #[non_exhaustive]
    FieldOmitted {
        /// The name of the field, such as `parallel_tool_calls`.
        field: &'static str,
    },
    /// A call of the history has no signature, for example because another model made it, and was sent with one that the endpoint
    /// [accepts instead](Endpoint::missing_signature). It is reported when the message is encoded for the first time.
    #[non_exhaustive]
    SignatureMissing {
        /// The name of the tool.
        tool: &'a str,
    },
    /// A conversation has reached the context that the server uses for the model, so the server removes its start without an error: see
    /// [`Endpoint::truncates_silently`].
    #[non_exhaustive]
    ContextReached {
        /// The name of the model.
        model: &'a str,
        /// The context, in tokens.
        context: u64,
    },
}

impl fmt::Display for Warning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DescriptionTruncated { tool, removed_chars } => {
                write!(f, "the description of the tool `{tool}` was truncated by {removed_chars} characters")
            }
            Self::FieldOmitted { field } => {
                write!(f, "the field `{field}` was omitted, because the endpoint does not support it")
            }
            Self::SignatureMissing { tool } => {
                write!(
                    f,
                    "a call of the tool `{tool}` has no signature, for example because another model made it; the endpoint may answer worse"
                )
            }
            Self::ContextReached { model, context } => {
                write!(
                    f,
                    "the conversation has reached the {context} tokens of context that the server uses for `{model}`, beyond which it \
                     removes earlier messages; set `OLLAMA_CONTEXT_LENGTH`, `num_ctx` in a Modelfile, or the context length in the \
                     settings of the app"
                )
            }
        }
    }
}

/// A function that is called with each warning.
pub(crate) type WarningHook = Arc<dyn Fn(&Warning<'_>) + Send + Sync>;

/// Reports the fields of a request that the endpoint does not support.
pub(crate) fn warn_about_omitted_fields(
    request: &ChatRequest<'_>,
    endpoint: &Endpoint,
    on_warning: Option<&WarningHook>,
) {
    let (Some(on_warning), false) = (on_warning, request.tools().is_empty()) else { return };
    let is_forced = matches!(request.tool_choice(), ToolChoice::Required | ToolChoice::Tool(_));
    let is_named =
        matches!(request.tool_choice(), ToolChoice::Tool(_)) && endpoint.supports_named_tool_choice;
    let has_parallel = request.parallel_tool_calls().is_some();
    let has_strict = request.tools().iter().any(ToolDefinition::is_strict);
    let fields = [
        ("tool_choice", is_forced && !is_named && endpoint.required_tool_choice.is_none()),
        ("parallel_tool_calls", has_parallel && !endpoint.supports_parallel_tool_calls),
        ("strict", has_strict && !endpoint.supports_strict),
    ];
    for (field, _) in fields.into_iter().filter(|(_, is_omitted)| *is_omitted) {
        on_warning(&Warning::FieldOmitted { field });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tool_core::provider::ToolDefinitions;

    use super::*;

    #[test]
    fn warns_about_omitted_fields() {
        let strict = ToolDefinition::new("now").into_strict().unwrap();
        let request = ChatRequest::new([]).with_tools(ToolDefinitions::from_iter([strict]));
        let forced = request.clone().with_tool_choice(ToolChoice::Required).with_parallel_tool_calls(false);
        let named = request.clone().with_tool_choice(ToolChoice::Tool("now".into()));
        let table = [
            (&forced, Endpoint::openai(), vec![]),
            (&forced, Endpoint::ollama(), vec!["tool_choice", "parallel_tool_calls", "strict"]),
            (&named, Endpoint::ollama(), vec!["tool_choice", "strict"]),
            (&named, Endpoint::lm_studio(), vec!["strict"]),
            (&ChatRequest::new([]).with_tool_choice(ToolChoice::Required), Endpoint::ollama(), vec![]),
        ];
        for (request, endpoint, expected) in table {
            let fields = Arc::new(Mutex::new(Vec::new()));
            let hook: WarningHook = {
                let fields = Arc::clone(&fields);
                Arc::new(move |warning| match warning {
                    Warning::FieldOmitted { field } => fields.lock().unwrap().push(*field),
                    other => panic!("{other}"),
                })
            };
            warn_about_omitted_fields(request, &endpoint, Some(&hook));
            assert_eq!(*fields.lock().unwrap(), expected, "{:?}", endpoint.name);
        }
    }
}
