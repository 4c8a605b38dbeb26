//! The sources of the crates, which declare the same tools, and ask the same questions, in two ways.

use std::fmt::Write;

pub(crate) const WITH_TOOL_DEPENDENCIES: &str =
    "tool-core = { path = \"ROOT/tool-core\" }\nfutures-util = \"0.3\"\n";

pub(crate) const BY_HAND_DEPENDENCIES: &str = "futures-util = \"0.3\"\nschemars = { version = \"1\", features = [\"preserve_order\"] }\n\
     serde = { version = \"1\", features = [\"derive\"] }\nserde_json = \"1\"\n";

/// The body of each tool in both crates.
const BODY: &str = "\
    if text.is_empty() {
        return Err(String::from(\"the text is empty\"));
    }
    Ok(numbers.iter().sum::<f64>() * f64::from(factor.unwrap_or(1)) + NUMBER as f64)
";

pub(crate) fn with_tool(count: usize) -> String {
    let mut source = String::from(
        "use tool_core::toolset::registered;\nuse tool_core::{ToolCall, ToolContext, ToolSet, tool};\n",
    );
    for number in 0..count {
        let body = BODY.replace("NUMBER", &(number % 7).to_string());
        write!(
            source,
            "
#[tool(\"Computes the number {number} of a text\")]
async fn tool_{number}(
    #[param(\"the text\")] text: String,
    #[param(\"the factor, 1 if left out\")] factor: Option<u32>,
    #[param(\"the numbers\")] numbers: Vec<f64>,
) -> Result<f64, String> {{
{body}}}
"
        )
        .unwrap();
    }
    let last = count - 1;
    write!(
        source,
        "
fn main() {{
    let name = std::env::args().nth(1).unwrap_or_else(|| \"tool_{last}\".into());
    let names: Vec<_> = registered().iter().map(|tool| tool.definition().name().to_owned()).collect();
    let set = ToolSet::named(names.iter().map(String::as_str)).unwrap();
    let call = ToolCall::new(\"1\", name, \"{{\\\"text\\\": \\\"x\\\", \\\"numbers\\\": [1.5, 3]}}\");
    let output = futures_util::FutureExt::now_or_never(set.call(&call, &ToolContext::new())).unwrap();
    println!(\"{{}} tools, {{}}\", set.definitions().len(), output.unwrap());
}}
"
    )
    .unwrap();
    source
}

pub(crate) fn by_hand(count: usize) -> String {
    let mut source = String::from(
        "use std::future::Future;
use std::pin::Pin;

use schemars::{JsonSchema, Schema, schema_for};
use serde::Deserialize;

type Call<'a> = Pin<Box<dyn Future<Output = Result<String, Box<dyn std::error::Error + Send + Sync>>> + Send + 'a>>;
",
    );
    let (mut definitions, mut arms) = (String::new(), String::new());
    for number in 0..count {
        let body = BODY.replace("NUMBER", &(number % 7).to_string());
        write!(
            source,
            "
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Tool{number} {{
    /// the text
    text: String,
    /// the factor, 1 if left out
    factor: Option<u32>,
    /// the numbers
    numbers: Vec<f64>,
}}

async fn tool_{number}(text: String, factor: Option<u32>, numbers: Vec<f64>) -> Result<f64, String> {{
{body}}}
"
        )
        .unwrap();
        writeln!(
            definitions,
            "        (\"tool_{number}\", \"Computes the number {number} of a text\", schema_for!(Tool{number})),"
        )
        .unwrap();
        write!(
            arms,
            "
        \"tool_{number}\" => Box::pin(async move {{
            let arguments: Tool{number} = serde_json::from_str(arguments)?;
            let output = tool_{number}(arguments.text, arguments.factor, arguments.numbers).await?;
            Ok(serde_json::to_string(&output)?)
        }}),"
        )
        .unwrap();
    }
    let last = count - 1;
    write!(
        source,
        "
fn definitions() -> Vec<(&'static str, &'static str, Schema)> {{
    vec![
{definitions}    ]
}}

fn call<'a>(name: &str, arguments: &'a str) -> Call<'a> {{
    match name {{{arms}
        other => {{
            let error = format!(\"there is no tool {{other}}\");
            Box::pin(async move {{ Err(error.into()) }})
        }}
    }}
}}

fn main() {{
    let name = std::env::args().nth(1).unwrap_or_else(|| \"tool_{last}\".into());
    let definitions = definitions();
    assert!(definitions.iter().all(|(_, _, schema)| schema.get(\"properties\").is_some()));
    let arguments = \"{{\\\"text\\\": \\\"x\\\", \\\"numbers\\\": [1.5, 3]}}\";
    let output = futures_util::FutureExt::now_or_never(call(&name, arguments)).unwrap();
    println!(\"{{}} tools, {{}}\", definitions.len(), output.unwrap());
}}
"
    )
    .unwrap();
    source
}

pub(crate) const ASSISTANT_DEPENDENCIES: &str = "futures-util = \"0.3\"\nschemars = { version = \"1\", features = [\"preserve_order\"] }\n\
     serde = { version = \"1\", features = [\"derive\"] }\ntool-core = { path = \"ROOT/tool-core\", features = [\"testing\"] }\n";

/// The number of types that the answers of the questions have.
const ANSWERS: usize = 10;

/// A trait of questions.
pub(crate) fn with_assistant(count: usize) -> String {
    let mut source = String::from("use tool_core::{Agent, RunError, assistant};\n");
    source.push_str("\n#[assistant(agent = PlannerAgent)]\ntrait Planner {\n");
    for number in 0..count {
        write!(
            source,
            "    #[ask(\"Plan {number} days in {{city}} for {{people}} people interested in {{interests:?}}.\")]
    async fn plan_{number}(&self, city: &str, people: u32, interests: &[String]) -> Result<Plan{answer}, RunError>;

",
            answer = number % ANSWERS,
        )
        .unwrap();
    }
    source.push_str("}\n");
    push_answers(&mut source);
    push_questions(&mut source, count, "PlannerAgent", |number| format!("agent.plan_{number}("));
    source
}

/// The same questions as functions.
pub(crate) fn questions_by_hand(count: usize) -> String {
    let mut source = String::from("use tool_core::{Agent, RunError};\n");
    for number in 0..count {
        write!(
            source,
            "
async fn plan_{number}(agent: &Agent, city: &str, people: u32, interests: &[String]) -> Result<Plan{answer}, RunError> {{
    let question = format!(\"Plan {number} days in {{city}} for {{people}} people interested in {{interests:?}}.\");
    agent.ask(question).answer_as::<Plan{answer}>().await
}}
",
            answer = number % ANSWERS,
        )
        .unwrap();
    }
    push_answers(&mut source);
    push_questions(&mut source, count, "Agent", |number| format!("plan_{number}(agent, "));
    source
}

/// Adds the types of the answers.
fn push_answers(source: &mut String) {
    for answer in 0..ANSWERS {
        write!(
            source,
            "
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Plan{answer} {{
    /// the sights
    sights: Vec<String>,
    /// the costs in euros
    costs: Option<f64>,
}}
"
        )
        .unwrap();
    }
}

/// Adds a program that asks an agent of this type all questions. `call` returns the call of a question up to its first argument.
fn push_questions(source: &mut String, count: usize, agent: &str, call: impl Fn(usize) -> String) {
    write!(
        source,
        "\nasync fn ask_all(agent: &{agent}) -> Result<usize, RunError> {{\n    let mut sights = 0;\n",
    )
    .unwrap();
    for number in 0..count {
        let call = call(number);
        writeln!(source, "    sights += {call}\"Rome\", 2, &[]).await.map(|plan| plan.sights.len() + plan.costs.iter().count())?;").unwrap();
    }
    write!(
        source,
        "    Ok(sights)
}}

fn main() {{
    let model = (0..{count}).fold(tool_core::testing::ScriptedModel::new(), |model, _| {{
        model.calls(\"final_answer\", \"{{\\\"sights\\\": [\\\"Forum\\\"]}}\")
    }});
    let agent = {agent}::from(Agent::builder(model).build().unwrap());
    let sights = futures_util::FutureExt::now_or_never(ask_all(&agent)).unwrap().unwrap();
    println!(\"{{sights}} sights\");
}}
"
    )
    .unwrap();
}
