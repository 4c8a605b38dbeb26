//! The rules of the matrix: what a layer does at one of its parts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tool_core::agent::{RunInfo, RunResources, RunSetup};
use tool_core::content::Content;
use tool_core::layer::{
    AnswerVerdict, CallVerdict, Layer, LayerContext, LayerError, LayerFuture, LayerPhase, NextLayer,
    OutputVerdict, QuestionVerdict,
};
use tool_core::memory::{Budget, InMemoryStore};
use tool_core::model::{ChatRequest, ChatStream, ConversationId, Message, RunUser, ToolDefinition};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{ToolExecution, ToolFuture};
use tool_core::{Tool, ToolCall, ToolContext, ToolError, ToolOutput};

/// What the layer does. All else passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    Pass,
    QuestionAnswer,
    QuestionEnd,
    QuestionFail,
    QuestionRewrite,
    BesideRewrite,
    BesidePass,
    BesideAnswer,
    BesideEnd,
    BesidePanic,
    Hide,
    HidePanic,
    ModelRewrite,
    ModelEnd,
    Rewrite,
    RewriteWrongly,
    RewriteFail,
    Deny,
    Approve,
    DenyApproval,
    EditApproval,
    LeaveToCaller,
    Replace,
    JudgeEnd,
    JudgePanic,
    OutputReplace,
    OutputEnd,
    OutputFail,
    AnswerReplace,
    AnswerRetry,
    AnswerEnd,
    AnswerPanic,
    Limit,
    MaxCost,
    Budget,
    Fallback,
    /// The application says what the run has: a layer, or a budget that is used up, or nothing.
    OpenDeny,
    OpenBudget,
    OpenFail,
    /// The tool is told whose run it is, and in which conversation.
    Whose,
}

impl Rule {
    pub(crate) const ALL: [Self; 40] = [
        Self::Pass,
        Self::QuestionAnswer,
        Self::QuestionEnd,
        Self::QuestionFail,
        Self::QuestionRewrite,
        Self::BesideRewrite,
        Self::BesidePass,
        Self::BesideAnswer,
        Self::BesideEnd,
        Self::BesidePanic,
        Self::Hide,
        Self::HidePanic,
        Self::ModelRewrite,
        Self::ModelEnd,
        Self::Rewrite,
        Self::RewriteWrongly,
        Self::RewriteFail,
        Self::Deny,
        Self::Approve,
        Self::DenyApproval,
        Self::EditApproval,
        Self::LeaveToCaller,
        Self::Replace,
        Self::JudgeEnd,
        Self::JudgePanic,
        Self::OutputReplace,
        Self::OutputEnd,
        Self::OutputFail,
        Self::AnswerReplace,
        Self::AnswerRetry,
        Self::AnswerEnd,
        Self::AnswerPanic,
        Self::Limit,
        Self::MaxCost,
        Self::Budget,
        Self::Fallback,
        Self::OpenDeny,
        Self::OpenBudget,
        Self::OpenFail,
        Self::Whose,
    ];

    pub(crate) fn phase(self) -> Option<LayerPhase> {
        Some(match self {
            Self::Pass | Self::Limit | Self::MaxCost | Self::Budget | Self::Fallback => return None,
            Self::OpenDeny | Self::OpenBudget | Self::OpenFail | Self::Whose => return None,
            Self::QuestionAnswer | Self::QuestionEnd | Self::QuestionFail => LayerPhase::Question,
            Self::BesidePass | Self::BesideAnswer | Self::BesideEnd | Self::BesidePanic => {
                LayerPhase::Question
            }
            Self::QuestionRewrite | Self::BesideRewrite => LayerPhase::Question,
            Self::Hide | Self::HidePanic => LayerPhase::Offer,
            Self::ModelRewrite | Self::ModelEnd => LayerPhase::Model,
            Self::Rewrite | Self::RewriteWrongly | Self::RewriteFail => LayerPhase::Rewrite,
            Self::Deny | Self::Approve | Self::DenyApproval | Self::EditApproval => LayerPhase::Judge,
            Self::LeaveToCaller | Self::Replace | Self::JudgeEnd | Self::JudgePanic => LayerPhase::Judge,
            Self::OutputReplace | Self::OutputEnd | Self::OutputFail => LayerPhase::Output,
            Self::AnswerReplace | Self::AnswerRetry | Self::AnswerEnd | Self::AnswerPanic => {
                LayerPhase::Answer
            }
        })
    }

    /// The answer, the arguments that the tool was executed with, and what the model read as its result.
    pub(crate) fn expected(self) -> &'static str {
        match self {
            Self::Pass | Self::BesidePass | Self::QuestionRewrite => "Done. | a | did a",
            Self::QuestionAnswer => "No. | - | -",
            // The model may have answered, and nothing of it left.
            Self::BesideAnswer => "No. | - | -",
            Self::QuestionEnd | Self::QuestionFail | Self::BesideEnd | Self::BesidePanic => "error | - | -",
            // The model already works on it.
            Self::BesideRewrite => "error | - | -",
            Self::Hide => "Done. | - | there is no tool",
            Self::HidePanic => "error | - | -",
            Self::ModelRewrite => "Done. | a | did a, briefly",
            Self::ModelEnd => "error | - | -",
            Self::Rewrite => "Done. | b | did b",
            Self::RewriteWrongly => "Done. | - | not executed",
            Self::RewriteFail => "error | - | -",
            Self::Deny => "Done. | - | denied: why",
            Self::Approve => "asked a, Done. | a | did a",
            Self::DenyApproval => "asked a, Done. | - | denied: by a person",
            Self::EditApproval => "asked a, Done. | - | denied: never c",
            Self::LeaveToCaller => "left a, Done. | - | by the caller",
            Self::Replace => "Done. | - | given",
            Self::JudgeEnd | Self::JudgePanic => "error | - | -",
            Self::OutputReplace => "Done. | a | replaced",
            Self::OutputEnd | Self::OutputFail => "error | a | -",
            Self::AnswerReplace => "Replaced. | a | did a",
            Self::AnswerRetry => "Better. | a | did a",
            Self::AnswerEnd | Self::AnswerPanic => "error | a | did a",
            Self::Limit | Self::MaxCost | Self::Budget => "error | - | -",
            Self::OpenDeny => "Done. | - | denied: why",
            Self::OpenBudget | Self::OpenFail => "error | - | -",
            Self::Whose => "Done. | a | did a for ada in chat",
            Self::Fallback => "Done. | a | did a",
        }
    }

    /// The replies of the model.
    pub(crate) fn script(self, call: (&str, &str)) -> ScriptedModel {
        let script = ScriptedModel::new().calls(call.0, call.1).says("Done.");
        if self == Self::AnswerRetry { script.says("Better.") } else { script }
    }
}

impl Layer for Rule {
    fn name(&self) -> &str {
        "rule"
    }

    fn sees(&self, phase: LayerPhase) -> bool {
        match self {
            Self::Limit | Self::MaxCost | Self::Budget | Self::Fallback => false,
            Self::OpenDeny | Self::OpenBudget | Self::OpenFail | Self::Whose => false,
            rule => rule.phase().is_none_or(|own| own == phase),
        }
    }

    fn is_beside(&self) -> bool {
        matches!(
            self,
            Self::BesideRewrite | Self::BesidePass | Self::BesideAnswer | Self::BesideEnd | Self::BesidePanic
        )
    }

    fn question<'a>(
        &'a self,
        question: &'a Content,
        _: &'a LayerContext<'a>,
    ) -> LayerFuture<'a, QuestionVerdict> {
        assert_eq!(question.text(), "go");
        Box::pin(async move {
            if self.is_beside() {
                // The model answers first.
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                }
            }
            match self {
                Self::QuestionAnswer | Self::BesideAnswer => Ok(QuestionVerdict::answer("No.")),
                Self::QuestionEnd | Self::BesideEnd => Ok(QuestionVerdict::end("why")),
                Self::QuestionRewrite | Self::BesideRewrite => Ok(QuestionVerdict::rewrite("gently")),
                Self::QuestionFail => Err("broken".into()),
                Self::BesidePanic => panic!("broken"),
                _ => Ok(QuestionVerdict::Pass),
            }
        })
    }

    fn offers(&self, tool: &ToolDefinition, _: &LayerContext<'_>) -> bool {
        match self {
            _ if tool.name() != "act" => true,
            Self::Hide => false,
            Self::HidePanic => panic!("broken"),
            _ => true,
        }
    }

    fn model<'a>(&'a self, request: ChatRequest<'a>, next: NextLayer<'a>) -> ChatStream<'a> {
        match self {
            Self::ModelRewrite => {
                let mut messages = request.messages().to_vec();
                messages.push(Message::user("briefly"));
                next.call(request.with_messages(messages))
            }
            Self::ModelEnd => {
                let error = NextLayer::end_run("why");
                ChatStream::new(futures_util::stream::iter([Err(error)]))
            }
            _ => next.call(request),
        }
    }

    fn rewrite<'a>(&'a self, call: &'a ToolCall, _: &'a LayerContext<'a>) -> LayerFuture<'a, Option<String>> {
        let rewritten = match self {
            _ if call.name != "act" => Ok(None),
            Self::Rewrite => Ok(Some(r#"{"text":"b"}"#.to_owned())),
            Self::RewriteWrongly => Ok(Some(r#"{"text":1,"more":2}"#.to_owned())),
            Self::RewriteFail => Err("broken".into()),
            _ => Ok(None),
        };
        Box::pin(async move { rewritten })
    }

    fn judge<'a>(&'a self, call: &'a ToolCall, _: &'a LayerContext<'a>) -> LayerFuture<'a, CallVerdict> {
        Box::pin(async move {
            Ok(match self {
                _ if call.name != "act" => CallVerdict::Pass,
                Self::Deny => CallVerdict::deny("why"),
                Self::EditApproval if call.arguments.contains('c') => CallVerdict::deny("never c"),
                Self::Approve | Self::DenyApproval | Self::EditApproval => CallVerdict::NeedsApproval,
                Self::LeaveToCaller => CallVerdict::LeaveToCaller,
                Self::Replace => CallVerdict::replace("given"),
                Self::JudgeEnd => CallVerdict::end("why"),
                Self::JudgePanic => panic!("broken"),
                _ => CallVerdict::Pass,
            })
        })
    }

    fn output<'a>(
        &'a self,
        execution: &'a ToolExecution,
        _: &'a LayerContext<'a>,
    ) -> LayerFuture<'a, OutputVerdict> {
        Box::pin(async move {
            match self {
                _ if execution.call().name != "act" => Ok(OutputVerdict::Pass),
                Self::OutputReplace => Ok(OutputVerdict::replace("replaced")),
                Self::OutputEnd => Ok(OutputVerdict::end("why")),
                Self::OutputFail => Err("broken".into()),
                _ => Ok(OutputVerdict::Pass),
            }
        })
    }

    fn answer<'a>(&'a self, text: &'a str, _: &'a LayerContext<'a>) -> LayerFuture<'a, AnswerVerdict> {
        Box::pin(async move {
            Ok(match self {
                _ if text != "Done." => AnswerVerdict::Pass,
                Self::AnswerReplace => AnswerVerdict::replace("Replaced."),
                Self::AnswerRetry => AnswerVerdict::retry("try again"),
                Self::AnswerEnd => AnswerVerdict::end("why"),
                Self::AnswerPanic => panic!("broken"),
                _ => AnswerVerdict::Pass,
            })
        })
    }
}

/// An application that gives each run what the rule says.
impl RunSetup for Rule {
    async fn open(&self, _: &RunInfo) -> Result<RunResources, LayerError> {
        let budget = || Budget::tokens(InMemoryStore::new(), 50, Duration::from_secs(3_600));
        match self {
            Self::OpenDeny => Ok(RunResources::new().layer(Self::Deny)),
            Self::OpenBudget => Ok(RunResources::new().budget(budget().key("all"))),
            Self::OpenFail => Err("broken".into()),
            _ => Ok(RunResources::new()),
        }
    }
}

/// The tool of the matrix, which records the texts that it is executed with.
#[derive(Clone)]
pub(crate) struct Act {
    definition: ToolDefinition,
    pub(crate) executed: Arc<Mutex<Vec<String>>>,
}

impl Act {
    pub(crate) fn new() -> Self {
        let parameters = serde_json::json!({
            "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"], "additionalProperties": false
        });
        let definition = ToolDefinition::new("act").with_description("Acts").with_parameters(parameters);
        Self { definition: definition.with_deferred(true), executed: Arc::default() }
    }

    fn text(arguments: &str) -> Result<String, ToolError> {
        let arguments: serde_json::Map<String, serde_json::Value> = serde_json::from_str(arguments)
            .map_err(|error| ToolError::invalid_arguments(error.to_string()))?;
        let text = arguments.get("text").and_then(|text| text.as_str());
        text.map(str::to_owned).ok_or_else(|| ToolError::invalid_arguments("`text` is missing"))
    }
}

impl Tool for Act {
    fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    fn call<'a>(&'a self, arguments: &'a str, context: &'a ToolContext) -> ToolFuture<'a> {
        let whose = context.get::<RunUser>().zip(context.get::<ConversationId>());
        let whose = whose.map(|(user, chat)| format!(" for {user} in {chat}")).unwrap_or_default();
        ToolFuture::ready(Self::text(arguments).map(|text| {
            self.executed.lock().unwrap().push(text.clone());
            ToolOutput::text(format!("did {text}{whose}"))
        }))
    }

    fn check_arguments(&self, arguments: &str, _: &ToolContext) -> Result<(), ToolError> {
        Self::text(arguments).map(drop)
    }
}
