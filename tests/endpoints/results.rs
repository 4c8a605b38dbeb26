//! Tables of values that tools return and the text that the model reads, up to the bytes that are sent.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::error::Error;
use std::fmt;
use std::panic::panic_any;
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tests::support::RawServer;
use tests::support::checked::CheckedServer;
use tool_core::content::{Content, Image, Part};
use tool_core::provider::JsonText;
use tool_core::run::{Run, Step, StopReason};
use tool_core::testing::ScriptedModel;
use tool_core::tool::{ToolErrorKind, ToolExecution};
use tool_core::{
    Agent, Message, RunErrorKind, ToolCall, ToolContext, ToolError, ToolOutput, ToolSet, tool, tools,
};
use tool_openai::OpenAi;
use tool_openai::server::Server;

async fn execute(set: &ToolSet) -> ToolExecution {
    let name = set.definitions()[0].name();
    set.execute(ToolCall::new("call_1", name, "{}"), &ToolContext::new()).await
}

fn text_or_error(execution: &ToolExecution) -> Result<String, String> {
    execution.outcome().map(ToString::to_string).map_err(ToString::to_string)
}

/// Checks rows of a type, a value and the text for the model; both a function and an `async` function return the value.
macro_rules! rows {
    ($($type:ty { $($value:expr => $expected:expr),* $(,)? })*) => {{
        let mut failures = Vec::new();
        $($({
            #[tool]
            fn now() -> $type {
                $value
            }
            #[tool]
            async fn later() -> $type {
                tokio::task::yield_now().await;
                $value
            }
            for set in [tools![now], tools![later]] {
                let found = text_or_error(&execute(&set).await);
                if found.as_deref().map_err(|error| &**error) != $expected {
                    failures.push(format!("{} {}: {found:?}", stringify!($type), stringify!($value)));
                }
            }
        })*)*
        assert!(failures.is_empty(), "{}", failures.join("\n"));
    }};
}

#[derive(Serialize)]
enum Letter {
    A,
    #[serde(rename = "bee")]
    B,
}

#[derive(Serialize)]
enum Shape {
    Circle { radius: f64 },
    Square(u8),
}

#[derive(Serialize)]
struct Nothing;

#[derive(Serialize)]
struct Name(&'static str);

#[derive(Serialize)]
struct City {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mayor: Option<String>,
    at: (f64, f64),
    letters: Vec<Letter>,
}

/// A type that is serialized as text, like the types of time crates.
struct Day(u16, u8, u8);

impl Serialize for Day {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:04}-{:02}-{:02}", self.0, self.1, self.2))
    }
}

/// A type that cannot be serialized.
struct Broken;

impl Serialize for Broken {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("it is broken"))
    }
}

fn city(mayor: Option<&str>) -> City {
    City {
        name: "Ulm".into(),
        mayor: mayor.map(Into::into),
        at: (48.4, 10.0),
        letters: vec![Letter::A, Letter::B],
    }
}

#[tokio::test]
async fn converts_texts_and_units() {
    rows! {
        () { () => Ok("Success") }
        Result<(), String> { Ok(()) => Ok("Success"), Err("no".into()) => Err("no") }
        Nothing { Nothing => Ok("null") }
        String {
            "22 °C".into() => Ok("22 °C"),
            String::new() => Ok(""),
            " ".into() => Ok(" "),
            "\"quoted\"\n".into() => Ok("\"quoted\"\n"),
        }
        &'static str { "as it is" => Ok("as it is"), "" => Ok(""), " " => Ok(" ") }
        Cow<'static, str> { "lent".into() => Ok("lent"), String::from("owned").into() => Ok("owned"), "".into() => Ok("") }
        Box<str> { "boxed".into() => Ok("boxed") }
        Result<String, String> { Ok(" ".into()) => Ok(" ") }
        char { 'ß' => Ok("\"ß\"") }
        Name { Name("a newtype is JSON") => Ok("\"a newtype is JSON\"") }
        Day { Day(2024, 2, 29) => Ok("\"2024-02-29\"") }
    }
}

#[tokio::test]
async fn converts_numbers_and_options() {
    rows! {
        u8 { 255 => Ok("255") }
        i64 { i64::MIN => Ok("-9223372036854775808") }
        u64 { u64::MAX => Ok("18446744073709551615") }
        i128 { i128::MIN => Ok("-170141183460469231731687303715884105728") }
        u128 { u128::MAX => Ok("340282366920938463463374607431768211455") }
        f64 {
            1.0 => Ok("1.0"),
            0.1 + 0.2 => Ok("0.30000000000000004"),
            f64::NAN => Ok("NaN"),
            f64::INFINITY => Ok("inf"),
            f64::NEG_INFINITY => Ok("-inf"),
        }
        f32 { 0.1 => Ok("0.1"), f32::NAN => Ok("NaN") }
        Result<f64, String> { Ok(f64::NAN) => Ok("NaN") }
        bool { true => Ok("true"), false => Ok("false") }
        Option<u8> { None => Ok("null"), Some(1) => Ok("1") }
        Option<String> { None => Ok("null"), Some("null".into()) => Ok("\"null\"") }
        Option<()> { None => Ok("null"), Some(()) => Ok("null") }
        Result<Option<u8>, String> { Ok(None) => Ok("null"), Ok(Some(1)) => Ok("1"), Err("no".into()) => Err("no") }
        Option<Option<u8>> { Some(Some(1)) => Ok("1"), Some(None) => Ok("null") }
    }
}

#[tokio::test]
async fn converts_serializable_values() {
    rows! {
        Letter { Letter::A => Ok("\"A\""), Letter::B => Ok("\"bee\"") }
        Shape {
            Shape::Circle { radius: 1.5 } => Ok(r#"{"Circle":{"radius":1.5}}"#),
            Shape::Square(2) => Ok(r#"{"Square":2}"#),
        }
        City {
            city(None) => Ok(r#"{"name":"Ulm","at":[48.4,10.0],"letters":["A","bee"]}"#),
            city(Some("M")) => Ok(r#"{"name":"Ulm","mayor":"M","at":[48.4,10.0],"letters":["A","bee"]}"#),
        }
        Vec<City> { vec![] => Ok("[]") }
        Vec<u8> { vec![0, 255] => Ok("[0,255]"), vec![] => Ok("[]") }
        Vec<Option<f64>> { vec![Some(1.0), None] => Ok("[1.0,null]") }
        [u8; 2] { [1, 2] => Ok("[1,2]") }
        VecDeque<&'static str> { ["a"].into() => Ok("[\"a\"]") }
        BTreeSet<u8> { [2, 1].into() => Ok("[1,2]") }
        HashSet<u8> { [].into() => Ok("[]") }
        BTreeMap<&'static str, u8> { [("b", 1), ("a", 2)].into() => Ok(r#"{"a":2,"b":1}"#), [].into() => Ok("{}") }
        BTreeMap<u8, Letter> { [(1, Letter::A)].into() => Ok(r#"{"1":"A"}"#) }
        HashMap<String, u8> { HashMap::new() => Ok("{}") }
        (u8, &'static str, Option<u8>) { (1, "a", None) => Ok("[1,\"a\",null]") }
        Box<City> { Box::new(city(None)) => Ok(r#"{"name":"Ulm","at":[48.4,10.0],"letters":["A","bee"]}"#) }
        Box<[u8]> { [1, 2].into() => Ok("[1,2]") }
        Duration { Duration::from_millis(1500) => Ok(r#"{"secs":1,"nanos":500000000}"#) }
        Value { json!({ "b": [1, null], "a": "x" }) => Ok(r#"{"b":[1,null],"a":"x"}"#), json!("x") => Ok("\"x\"") }
        Box<RawValue> { RawValue::from_string("[1.50,  2]".into()).unwrap() => Ok("[1.50,  2]") }
    }
}

#[tokio::test]
async fn rejects_values_without_a_json_form() {
    let keys = Err("the output cannot be written as JSON: key must be a string");
    rows! {
        HashMap<(u8, u8), u8> { [((1, 2), 3)].into() => keys }
        Result<BTreeMap<Vec<u8>, u8>, String> { Ok([(vec![1], 2)].into()) => keys }
        Broken { Broken => Err("the output cannot be written as JSON: it is broken") }
    }
}

#[derive(Debug)]
struct Blank;

impl fmt::Display for Blank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(" \n")
    }
}

impl Error for Blank {}

/// An error with sources, like the errors of derive macros.
#[derive(Debug)]
struct Layer(&'static str, Option<Box<dyn Error + Send + Sync>>);

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Layer {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.1.as_deref().map(|source| source as _)
    }
}

fn layers(texts: [&'static str; 3]) -> Layer {
    texts.into_iter().rev().fold(None, |source, text| Some(Box::new(Layer(text, source)) as _)).map_or_else(
        || Layer("", None),
        |outer: Box<dyn Error + Send + Sync>| *outer.downcast::<Layer>().unwrap(),
    )
}

type Boxed = Box<dyn Error + Send + Sync>;

#[tokio::test]
async fn reports_errors_with_their_sources() {
    rows! {
        Result<u8, String> { Err("no such city".into()) => Err("no such city"), Err(String::new()) => Err("alloc::string::String") }
        Result<u8, &'static str> { Err("no such city") => Err("no such city"), Err(" ") => Err("&str") }
        Result<u8, Cow<'static, str>> { Err("no such city".into()) => Err("no such city") }
        std::io::Result<u8> {
            Err(std::io::Error::other("the disk is full")) => Err("the disk is full"),
            Err(std::io::ErrorKind::NotFound.into()) => Err("entity not found"),
        }
        Result<u8, std::num::ParseIntError> { "x".parse() => Err("invalid digit found in string") }
        anyhow::Result<u8> {
            Err(anyhow::anyhow!("timed out").context("booking failed")) => Err("booking failed: timed out"),
            Err(anyhow::anyhow!("")) => Err("anyhow::Error"),
        }
        Result<u8, Boxed> {
            Err("no such city".into()) => Err("no such city"),
            Err(layers(["booking failed", "no answer", "timed out"]).into()) => Err("booking failed: no answer: timed out"),
        }
        Result<u8, Layer> {
            Err(layers(["booking failed", "no answer", "timed out"])) => Err("booking failed: no answer: timed out"),
            Err(layers(["failed: timed out", " ", "timed out"])) => Err("failed: timed out"),
            Err(layers(["", "no answer", ""])) => Err("endpoints::results::Layer: no answer"),
        }
        Result<u8, Blank> { Err(Blank) => Err("endpoints::results::Blank") }
        Result<u8, ToolError> {
            Err(ToolError::invalid_arguments("`x` is odd")) => Err("`x` is odd"),
            Err(ToolError::failed("no such city")) => Err("no such city"),
        }
    }
}

#[tokio::test]
async fn converts_nested_results() {
    rows! {
        Option<Result<u8, String>> { None => Ok("null"), Some(Ok(1)) => Ok("1"), Some(Err("no".into())) => Err("no") }
        Option<Result<City, String>> {
            Some(Ok(city(None))) => Ok(r#"{"name":"Ulm","at":[48.4,10.0],"letters":["A","bee"]}"#),
            Some(Err("A".into())) => Err("A"),
        }
        // A result that is not the outcome of the call is data.
        Result<Result<u8, String>, String> {
            Ok(Ok(1)) => Ok(r#"{"Ok":1}"#),
            Ok(Err("inner".into())) => Ok(r#"{"Err":"inner"}"#),
            Err("outer".into()) => Err("outer"),
        }
        Vec<Result<u8, String>> { vec![Ok(1), Err("no".into())] => Ok(r#"[{"Ok":1},{"Err":"no"}]"#) }
        BTreeMap<&'static str, u8> { [("Err", 1)].into() => Ok(r#"{"Err":1}"#) }
    }
}

#[tokio::test]
async fn reports_panics_with_a_reference_only() {
    let reference = Err("the tool failed (reference call_1)");
    rows! {
        u8 {
            panic!("secret") => reference,
            panic!("secret {}", 1) => reference,
            panic_any(17) => reference,
            panic_any(String::from("secret")) => reference,
            "x".parse().unwrap() => reference,
            [1, 2, 3][std::hint::black_box(7)] => reference,
        }
        Result<u8, String> { panic!("secret") => reference }
    }

    #[tool]
    fn panic_with_text() {
        panic!("secret {}", 1)
    }
    #[tool]
    async fn panic_without_text() {
        panic_any(17)
    }
    for (set, text) in
        [(tools![panic_with_text], "panicked: secret 1"), (tools![panic_without_text], "panicked: no text")]
    {
        let execution = execute(&set).await;
        let error = execution.outcome().unwrap_err();
        assert_eq!(error.kind(), ToolErrorKind::Panicked);
        assert_eq!(error.failure().unwrap().to_string(), text);
    }
}

const GIF: &[u8] = b"GIF89a";
const GIF_URL: &str = "data:image/gif;base64,R0lGODlh";

#[tokio::test]
async fn converts_outputs_with_parts() {
    let keys = Err("the output cannot be written as JSON: key must be a string");
    rows! {
        ToolOutput {
            ToolOutput::text("as it is") => Ok("as it is"),
            ToolOutput::json(&city(None)).unwrap() => Ok(r#"{"name":"Ulm","at":[48.4,10.0],"letters":["A","bee"]}"#),
            ToolOutput::text("one").with_part("two").with_part(JsonText::from(json!(3))) => Ok("onetwo\n3"),
            ToolOutput::image(Image::from_bytes("image/gif", GIF)) => Ok(""),
            ToolOutput::from_iter([Part::from("a"), Image::from_url("https://a").into(), "b".into()]) => Ok("ab"),
            ToolOutput::text("with data").with_data("secret") => Ok("with data"),
        }
        Result<ToolOutput, String> { Ok("fine".into()) => Ok("fine"), Err("no".into()) => Err("no") }
        Result<ToolOutput, Boxed> { (|| Ok(ToolOutput::json(&HashMap::from([((1, 2), 3)]))?))() => keys }
        Content { Content::from_iter(["a".into(), "b".into()]) => Ok("ab") }
        Image { Image::from_bytes("image/gif", GIF) => Ok("") }
        Result<Image, String> { Err("no pencil".into()) => Err("no pencil") }
    }

    #[tool]
    fn image() -> Image {
        Image::from_bytes("image/gif", GIF)
    }
    #[tool]
    async fn content() -> Result<Content, String> {
        Ok(Part::from(Image::from_url(GIF_URL)).into())
    }
    for set in [tools![image], tools![content]] {
        let execution = execute(&set).await;
        let images: Vec<_> = execution.output().unwrap().content().images().map(Image::url).collect();
        assert_eq!(images, [GIF_URL]);
    }

    #[tool]
    fn value() -> ToolOutput {
        ToolOutput::json(&u128::MAX).unwrap().with_data(json!({ "rows": 3 })).with_data(json!({ "rows": 4 }))
    }
    let execution = execute(&tools![value]).await;
    let output = execution.output().unwrap();
    assert_eq!(output.data(), Some(&json!({ "rows": 4 })));
    let [Part::Json(json)] = output.content().parts() else { panic!("{output:?}") };
    assert_eq!(json.parse::<u128>().unwrap(), u128::MAX);
    assert_eq!(format!("{output:?}"), "ToolOutput(39 bytes, with data)");
    assert_eq!(ToolOutput::text("a").with_data(Value::Null), ToolOutput::text("a"));
    let rows = ToolOutput::text("a").with_json_data(&BTreeMap::from([("rows", 5)])).unwrap();
    assert_eq!(rows.data(), Some(&json!({ "rows": 5 })));
    let error = ToolOutput::text("a").with_json_data(&BTreeMap::from([([1], 5)])).unwrap_err();
    assert_eq!(error.to_string(), "the output cannot be written as JSON: key must be a string");
}

/// Draws a chart of the measurements.
#[tool]
fn plot() -> ToolOutput {
    ToolOutput::text("The week:")
        .with_part(Image::from_bytes("image/gif", GIF))
        .with_data(json!({ "key": "secret" }))
}

/// Writes many lines.
#[tool]
fn log(lines: usize) -> String {
    "all is well\n".repeat(lines)
}

/// Fails with a long message.
#[tool]
fn fail() -> Result<(), Layer> {
    Err(Layer("no ", Some("such city ".repeat(1000).into())))
}

#[tokio::test]
async fn sends_an_image_with_the_next_request() {
    let picture = |message: &Message| {
        matches!(message, Message::User(content) if matches!(content.parts(),
            [Part::Text { text }, Part::Image(image)] if text.contains("`plot`, call `call_1_0`") && image.url() == GIF_URL))
    };
    let script = ScriptedModel::new()
        .calls_all([("plot", "{}"), ("log", r#"{"lines": 1}"#)])
        .expects(|request| request.messages().len() == 5)
        .expects(|request| request.messages()[2].text().starts_with("The week:\n[1 image, "))
        .expects(|request| request.messages()[3].text() == "all is well\n")
        .expects(move |request| picture(&request.messages()[4]))
        .says("It was warm.");
    let server = CheckedServer::start(Server::new().model("m", script)).await;
    let openai = OpenAi::builder().base_url(server.base_url()).build().unwrap();
    let agent = Agent::builder(openai.chat_model("m")).tools(tools![plot, log]).build().unwrap();
    let answer = agent.ask("How was the week?").await.unwrap();
    assert_eq!(answer.text(), "It was warm.");
    assert_eq!(answer.tool_executions()[0].output().unwrap().data(), Some(&json!({ "key": "secret" })));
    // The conversation has the image in the tool result, although the request has it elsewhere.
    assert_eq!(answer.new_messages().len(), 5);
}

#[tokio::test]
async fn sends_no_data() {
    let call = json!({ "id": "a", "type": "function", "function": { "name": "plot", "arguments": "{}" } });
    let reply = json!({ "choices": [{ "message": { "content": null, "tool_calls": [call] } }] });
    let headers = [("content-type", "application/json")];
    let server = RawServer::answering("200 OK", &headers, reply.to_string().as_bytes()).await;
    let openai = OpenAi::builder().base_url(server.base_url()).build().unwrap();
    let agent = Agent::builder(openai.chat_model("m"))
        .tools(tools![plot])
        .limits(|l| l.max_turns(3))
        .build()
        .unwrap();
    let error = agent.ask("How was the week?").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTurns(_))), "{error}");
    assert_eq!(error.tool_executions()[1].output().unwrap().data(), Some(&json!({ "key": "secret" })));
    assert!(!serde_json::to_string(error.new_messages()).unwrap().contains("secret"));
    let bodies: Vec<_> = server
        .requests()
        .iter()
        .map(|request| request.split_once("\r\n\r\n").unwrap().1.to_owned())
        .collect();
    assert_eq!(bodies.len(), 3);
    for (turn, body) in bodies.iter().enumerate() {
        assert!(!body.contains("secret"), "{body}");
        assert_eq!(body.matches(GIF_URL).count(), turn);
        let so_far = &bodies[turn.saturating_sub(1)];
        assert!(body.starts_with(&so_far[..so_far.len() - "]}".len()]), "{body}");
    }
}

#[tokio::test]
async fn stores_images_and_data_in_the_state_of_a_run() {
    let model = ScriptedModel::new().calls("plot", "{}").says("Warm.");
    let agent = Agent::builder(model).tools(tools![plot]).build().unwrap();
    let question = Content::from_iter([Part::from("How was it?"), Image::from_url("https://a/b.png").into()]);
    let live = agent.ask(question.clone()).start();
    let context = live.context().clone();
    let mut run = live.into_run();
    loop {
        let state = serde_json::to_string(&run).unwrap();
        let restored: Run = serde_json::from_str(&state).unwrap();
        assert_eq!(restored.messages(), run.messages());
        assert_eq!(serde_json::to_string(&restored).unwrap(), state);
        assert!(
            !format!("{run:?}").contains("R0lGODlh") && !format!("{run:?}").contains("secret"),
            "{run:?}"
        );
        run = restored;
        match run.next(agent.tools().definitions()) {
            Step::CallModel(request) => {
                let response = agent.model().chat(&request).await.unwrap();
                run.record_response(response).unwrap();
            }
            Step::CallTools(calls) => {
                for call in calls {
                    run.record_result(agent.tools().execute(call, &context).await).unwrap();
                }
            }
            _ => break,
        }
    }
    assert_eq!(run.messages()[0], Message::User(question));
    let output = run.tool_executions()[0].output().unwrap();
    assert_eq!(output, &plot());
    assert_eq!(run.finish().unwrap().text(), "Warm.");
}

#[tokio::test]
async fn a_limit_applies_to_outputs_and_errors() {
    let tools = tools![log, fail, plot];
    let call = |name: &str| ToolCall::new("call_1", name, r#"{"lines": 1000}"#);
    let plain = |name: &str| ToolCall::new("call_1", name, "{}");
    let context = ToolContext::new();

    let limited = tools.clone().max_output_chars(100);
    let execution = limited.execute(call("log"), &context).await;
    let output = execution.output().unwrap();
    let text = output.to_string();
    assert_eq!(text.chars().count(), 100);
    assert!(text.starts_with("all is well\nall is well\n") && text.ends_with("all is well\n"), "{text}");
    assert!(
        text.contains(&format!("\n[… {} characters left out …]\n", output.omitted_chars().unwrap())),
        "{text}"
    );
    let restored: ToolExecution = serde_json::from_str(&serde_json::to_string(&execution).unwrap()).unwrap();
    assert_eq!(restored.output(), execution.output());
    assert_eq!(restored.output().unwrap().omitted_chars(), output.omitted_chars());

    let failed = limited.execute(plain("fail"), &context).await;
    let error = failed.outcome().unwrap_err();
    assert!(
        error.kind() == ToolErrorKind::Failed && error.to_string().starts_with("no : such city such city"),
        "{error}"
    );
    assert!((98..=100).contains(&error.to_string().chars().count()), "{error}");
    assert_eq!(error.failure().unwrap().source().unwrap().to_string().len(), 10_000);

    let unknown = limited.execute(call(&"x".repeat(90)), &context).await;
    let error = unknown.outcome().unwrap_err();
    assert!(
        error.kind() == ToolErrorKind::UnknownTool && (98..=100).contains(&error.to_string().chars().count()),
        "{error}"
    );

    let short = limited.execute(plain("plot"), &context).await;
    assert_eq!(short.output(), Some(&plot()));
    let nothing = tools.clone().max_output_chars(0).execute(plain("plot"), &context).await;
    let output = nothing.output().unwrap();
    assert_eq!((output.to_string().as_str(), output.omitted_chars()), ("", Some(9)));
    assert_eq!((output.content().images().count(), output.data().is_some()), (1, true));
}

#[tokio::test]
async fn the_smallest_of_several_limits_applies() {
    let lengths = |set: ToolSet| async move {
        let model = || ScriptedModel::new().calls("log", r#"{"lines": 1000}"#).says("Done.");
        let mut lengths = Vec::new();
        for limit in [None, Some(200), Some(50)] {
            let builder = Agent::builder(model()).tools(set.clone());
            let agent = limit
                .into_iter()
                .fold(builder, |builder, limit| builder.max_output_chars(limit))
                .build()
                .unwrap();
            let answer = agent.ask("?").await.unwrap();
            let text = answer.new_messages()[2].text().chars().count();
            assert_eq!(answer.tool_executions()[0].output().unwrap().to_string().chars().count(), text);
            lengths.push(text);
        }
        lengths
    };
    assert_eq!(lengths(tools![log]).await, [12_000, 200, 50]);
    assert_eq!(lengths(tools![log].max_output_chars(100)).await, [100, 100, 50]);
    assert_eq!(lengths(tools![log].max_output_chars(100).max_output_chars(300)).await, [100, 100, 50]);
    assert_eq!(lengths(tools![log].union(tools![plot].max_output_chars(100)).unwrap()).await, [100, 100, 50]);
    assert_eq!(lengths(tools![log].max_output_chars(100).no_repair()).await, [100, 100, 50]);
}
