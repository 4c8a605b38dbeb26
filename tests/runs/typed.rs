//! Typed answers, by a schema that constrains the model or by a final tool; invalid answers go back to the model.

use schemars::JsonSchema;
use serde::Deserialize;
use tool_core::model::{ChatRequest, ChatStream, ToolChoice};
use tool_core::provider::ModelFuture;
use tool_core::run::{RunLimits, StopReason};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ChatModel, RunError, RunErrorKind, tool, tools};

/// A model with response formats, with or without support for them beside tools.
pub(crate) struct WithFormats {
    pub(crate) model: ScriptedModel,
    pub(crate) with_tools: bool,
}

impl ChatModel for WithFormats {
    fn chat<'a>(&'a self, request: &'a ChatRequest<'_>) -> ModelFuture<'a> {
        self.model.chat(request)
    }

    fn stream<'a>(&'a self, request: &'a ChatRequest<'_>) -> ChatStream<'a> {
        self.model.stream(request)
    }

    fn supports_response_format(&self) -> bool {
        true
    }

    fn supports_response_format_with_tools(&self) -> bool {
        self.with_tools
    }
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Size {
    Small,
    Large,
}

/// A city.
#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
struct City {
    name: String,
    size: Size,
    #[serde(default)]
    rivers: Vec<String>,
}

#[tool]
fn look_up(name: String) -> String {
    format!("{name} is large")
}

const VIENNA: &str = r#"{"name": "Vienna", "size": "large", "rivers": ["Danube"]}"#;

fn vienna() -> City {
    City { name: "Vienna".into(), size: Size::Large, rivers: vec!["Danube".into()] }
}

async fn ask_with_formats(model: ScriptedModel) -> Result<City, RunError> {
    let agent =
        Agent::builder(WithFormats { model, with_tools: true }).tools(tools![look_up]).build().unwrap();
    agent.ask("Which city?").answer_as::<City>().await
}

async fn ask_plain(model: ScriptedModel) -> Result<City, RunError> {
    let agent = Agent::builder(model).tools(tools![look_up]).build().unwrap();
    agent.ask("Which city?").answer_as::<City>().await
}

#[tokio::test]
async fn constrains_a_model_that_supports_schemas() {
    let format_is_there = |request: &ChatRequest<'_>| {
        let format = request.response_format().unwrap();
        format.schema()["properties"]["size"].is_object() && request.tools().len() == 1
    };
    let model = ScriptedModel::new()
        .expects(format_is_there)
        .calls("look_up", r#"{"name": "Vienna"}"#)
        .expects(format_is_there)
        .says(VIENNA);
    assert_eq!(ask_with_formats(model).await.unwrap(), vienna());
    // In strict form, `null` stands for an absent value.
    let model = ScriptedModel::new().says(r#"{"name": "Graz", "size": "small", "rivers": null}"#);
    assert_eq!(ask_with_formats(model).await.unwrap().rivers, Vec::<String>::new());
    let model =
        ScriptedModel::new().says(r#"{"answer": [{"name": "Graz", "size": "small", "rivers": null}]}"#);
    let agent = Agent::builder(WithFormats { model, with_tools: true }).build().unwrap();
    assert_eq!(agent.ask("Which?").answer_as::<Vec<City>>().await.unwrap()[0].name, "Graz");
}

#[tokio::test]
async fn other_models_answer_with_the_final_tool() {
    let model = ScriptedModel::new()
        .expects(|request| {
            let tool = request.tools().iter().find(|tool| tool.name() == "final_answer").unwrap();
            request.response_format().is_none()
                && tool.parameters()["properties"]["name"]["type"] == "string"
                && *request.tool_choice() == ToolChoice::Auto
        })
        .calls("look_up", r#"{"name": "Vienna"}"#)
        .calls("final_answer", VIENNA);
    assert_eq!(ask_plain(model).await.unwrap(), vienna());
    // A text of the right form is accepted, fenced or not.
    assert_eq!(
        ask_plain(ScriptedModel::new().says(format!("```json\n{VIENNA}\n```"))).await.unwrap(),
        vienna()
    );
}

#[tokio::test]
async fn reports_an_invalid_answer_to_the_model() {
    let says = |text: &'static str| {
        move |request: &ChatRequest<'_>| {
            let last = request.messages().last().unwrap().text().into_owned();
            assert!(last.starts_with("the answer does not have the requested form: "), "{last}");
            last.contains(text)
        }
    };
    let model = ScriptedModel::new()
        .calls("final_answer", r#"{"size": "huge"}"#)
        .expects(says("`name` is missing"))
        .expects(says("give your answer by calling `final_answer`"))
        .says("It is Vienna.")
        .expects(says("give your answer by calling `final_answer`"))
        .calls("final_answer", VIENNA);
    assert_eq!(ask_plain(model).await.unwrap(), vienna());
    let model = ScriptedModel::new()
        .says(r#"{"name": "Vienna", "size": "huge"}"#)
        .expects(says("`size`"))
        .says(VIENNA);
    assert_eq!(ask_with_formats(model).await.unwrap(), vienna());
}

#[tokio::test]
async fn within_a_limit() {
    let wrong = || ScriptedModel::new().says("no").says("no").says("no").says(VIENNA);
    let error = ask_with_formats(wrong()).await.unwrap_err();
    assert!(
        matches!(error.kind(), RunErrorKind::Stopped(StopReason::WrongAnswer(_))) && !error.is_resumable()
    );
    let text = error.to_string();
    let expected = "the model gave no valid answer: the answer does not have the requested form: ";
    assert!(text.starts_with(expected) && !text.contains("arguments"), "{text}");
    assert_eq!(error.new_messages().len(), 6);
    let actual = ask_plain(wrong()).await.unwrap_err().to_string();
    assert!(!actual.contains("final_answer"), "text meant for the model: {actual}");
    let limits = RunLimits::new().max_wrong_answers(3);
    let agent =
        Agent::builder(WithFormats { model: wrong(), with_tools: true }).limits(|_| limits).build().unwrap();
    assert_eq!(agent.ask("Which?").answer_as::<City>().await.unwrap(), vienna());
    let agent = Agent::builder(WithFormats { model: wrong(), with_tools: true })
        .limits(|l| l.max_turns(1))
        .build()
        .unwrap();
    let error = agent.ask("Which?").answer_as::<City>().await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::WrongAnswer(_))));
}

#[tokio::test]
async fn does_not_retry_a_refusal() {
    let mut message = tool_core::model::AssistantMessage::default();
    message.refusal = Some("I will not.".into());
    let model = ScriptedModel::new().replies(tool_core::model::ChatResponse::new(message)).says(VIENNA);
    let error = ask_with_formats(model.clone()).await.unwrap_err();
    let RunErrorKind::Stopped(StopReason::Refused(refusal)) = error.kind() else { panic!("{error}") };
    assert_eq!(
        (&**refusal, &*error.to_string(), model.remaining()),
        ("I will not.", "the model refused to answer: I will not.", 1)
    );
}

#[derive(Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Drawing {
    Circle { radius: u8 },
    Line,
}

#[tokio::test]
async fn a_refusal_is_no_answer_of_any_type() {
    let refusal =
        || tool_core::model::ChatResponse::new(tool_core::model::AssistantMessage::refusal("I will not."));
    let agent = || Agent::builder(ScriptedModel::new().replies(refusal())).build().unwrap();
    let errors = [
        agent().ask("Which?").answer_as::<Option<u32>>().await.unwrap_err(),
        agent().ask("Which?").answer_as::<City>().await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::Refused(_))), "{error}");
    }
}

#[tokio::test]
async fn wraps_answers_that_are_not_objects() {
    let model = ScriptedModel::new().says(r#"{"answer": ["a", "b"]}"#);
    let agent = Agent::builder(WithFormats { model, with_tools: true }).build().unwrap();
    let (names, answer) = agent.ask("Which?").answer_as::<Vec<String>>().with_answer().await.unwrap();
    assert_eq!((names, answer.turns()), (vec!["a".into(), "b".into()], 1));
    let agent = Agent::builder(ScriptedModel::new().calls("final_answer", r#"{"answer": "large"}"#));
    assert_eq!(agent.build().unwrap().ask("How large?").answer_as::<Size>().await.unwrap(), Size::Large);
    // An answer with the wrong form and a clear meaning is repaired.
    let agent = Agent::builder(ScriptedModel::new().calls("final_answer", r#"{"answer": "42"}"#));
    assert_eq!(agent.build().unwrap().ask("How many?").answer_as::<u32>().await.unwrap(), 42);
}

#[tokio::test]
async fn accepts_a_value_that_is_the_whole_text() {
    let asking = |text: &str| {
        Agent::builder(ScriptedModel::new().says(text)).limits(|l| l.max_turns(1)).build().unwrap().ask("?")
    };
    assert!(asking(" true\n").answer_as::<bool>().await.unwrap());
    assert_eq!(asking("42").answer_as::<u32>().await.unwrap(), 42);
    assert_eq!(asking(r#"["a", "b"]"#).answer_as::<Vec<String>>().await.unwrap(), ["a", "b"]);
    for text in ["large", "\"large\"", "LARGE", r#""{\"answer\": \"large\"}""#] {
        assert_eq!(asking(text).answer_as::<Size>().await.unwrap(), Size::Large, "{text}");
    }
    // Also an object, if the type is no struct but a choice of them, whether the model says it or calls the tool.
    let shape = r#"{"kind": "circle", "radius": 2}"#;
    assert_eq!(asking(shape).answer_as::<Drawing>().await.unwrap(), Drawing::Circle { radius: 2 });
    let agent = Agent::builder(ScriptedModel::new().calls("final_answer", shape)).build().unwrap();
    let drawing = agent.ask("?").answer_as::<Drawing>().by_tool().await.unwrap();
    assert_eq!(drawing, Drawing::Circle { radius: 2 });
    let error = asking(r#"{"kind": "circle"}"#).answer_as::<Drawing>().await.unwrap_err().to_string();
    assert!(error.ends_with("`answer.radius` is missing, expected an integer from 0 to 255"), "{error}");
    // More than a word is no value, and an object is no list: they would become a list of one item.
    for (text, expected) in [
        ("I do not know.", "not valid JSON"),
        ("", "`answer` is missing, expected a list"),
        (r#"{"values": [1, 2]}"#, "`answer` is missing, expected a list"),
    ] {
        let error = asking(text).answer_as::<Vec<serde_json::Value>>().await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let error = asking("7").answer_as::<bool>().await.unwrap_err().to_string();
    assert!(error.ends_with("`answer`: expected true or false, got 7"), "{error}");
}

#[tokio::test]
async fn passes_other_failures_through() {
    assert!(matches!(
        ask_plain(ScriptedModel::new().fails("the line is dead")).await.unwrap_err().kind(),
        RunErrorKind::Model(_)
    ));
    let model = ScriptedModel::new().calls("look_up", "{").says("never");
    let agent = Agent::builder(model).tools(tools![look_up]).limits(|l| l.max_turns(1)).build().unwrap();
    let error = agent.ask("Which?").answer_as::<City>().await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTurns(_))));
}

#[tokio::test]
async fn accepts_an_answer_in_the_last_turn() {
    let model = ScriptedModel::new().calls("final_answer", r#"{"answer": 7}"#);
    let agent = Agent::builder(model).limits(|l| l.max_turns(1)).build().unwrap();
    assert_eq!(agent.ask("How many?").answer_as::<u32>().await.unwrap(), 7);
}

#[tokio::test]
async fn uses_a_final_tool_if_schemas_prevent_calls() {
    let by_tool =
        |request: &ChatRequest<'_>| request.response_format().is_none() && request.tools().len() == 2;
    let model = ScriptedModel::new().expects(by_tool).calls("final_answer", VIENNA);
    let agent =
        Agent::builder(WithFormats { model, with_tools: false }).tools(tools![look_up]).build().unwrap();
    assert_eq!(agent.ask("Which city?").answer_as::<City>().await.unwrap(), vienna());
    // Without tools, the model is constrained to the schema.
    let by_format =
        |request: &ChatRequest<'_>| request.response_format().is_some() && request.tools().is_empty();
    let model = ScriptedModel::new().expects(by_format).says(VIENNA);
    let agent = Agent::builder(WithFormats { model, with_tools: false }).build().unwrap();
    assert_eq!(agent.ask("Which city?").answer_as::<City>().await.unwrap(), vienna());
}
