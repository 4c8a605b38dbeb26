//! How often the right tool is found among many, measured with questions of the Berkeley function-calling leaderboard.
//!
//! The questions are in `../shared/bfcl`, next to the repository. Half of them were used to choose the constants of the index, and
//! both halves are reported.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::Value;
use tool_core::agent::ToolSearch;
use tool_core::model::{ChatRequest, ToolDefinition};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ToolSet};

use super::Defined;

/// A question and the names of the tools that answer it.
struct Question {
    text: String,
    answers: Vec<String>,
}

/// Reads a file of cases: all their tools as one set, and their questions.
fn read(file: &str) -> (ToolSet, Vec<Question>) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = here.ancestors().map(|folder| folder.join("shared/bfcl")).find(|folder| folder.is_dir());
    let text = fs::read_to_string(folder.expect("../shared/bfcl exists").join(file)).unwrap();
    let cases: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut tools = ToolSet::default();
    for tool in cases.iter().flat_map(|case| case["tools"].as_array().unwrap()) {
        let definition = ToolDefinition::new(tool["name"].as_str().unwrap())
            .with_description(tool["description"].as_str().unwrap())
            .with_parameters(tool["parameters"].clone());
        // Several cases have the same tool.
        if tools.get(definition.name()).is_none() {
            tools = tools.with(Defined(definition)).unwrap();
        }
    }
    let questions = cases.iter().map(|case| {
        let mut answers: Vec<_> = case["calls"].as_array().unwrap().iter().collect();
        answers.dedup_by_key(|call| &call["name"]);
        Question {
            text: case["question"].as_str().unwrap().to_owned(),
            answers: answers.iter().map(|call| call["name"].as_str().unwrap().to_owned()).collect(),
        }
    });
    (tools, questions.collect())
}

/// The share of questions whose tool is first, and whose tool is among the first five, in percent.
fn recall<'a>(tools: &ToolSet, questions: impl Iterator<Item = &'a Question>) -> [f64; 2] {
    let (mut first, mut among_five, mut all) = (0.0, 0.0, 0.0);
    for question in questions {
        let found = tools.search(&question.text, 5);
        for answer in &question.answers {
            let place = found.iter().position(|tool| tool.name() == answer);
            all += 1.0;
            first += f64::from(u8::from(place == Some(0)));
            among_five += f64::from(u8::from(place.is_some()));
            if std::env::var_os("SHOW_MISSED").is_some() && place.is_none() {
                let names: Vec<_> = found.iter().map(|tool| tool.name()).collect();
                println!("{answer}: {}\n    {names:?}", question.text);
            }
        }
    }
    [first / all * 100.0, among_five / all * 100.0]
}

#[test]
#[ignore = "needs ../shared/bfcl"]
fn the_right_tool_is_among_the_first_five() {
    let (tools, questions) = read("search.jsonl");
    assert_eq!((tools.len(), questions.len()), (545, 400));
    let clock = Instant::now();
    let _ = tools.search("weather", 5);
    println!("index of {} tools: {:?}", tools.len(), clock.elapsed());
    let clock = Instant::now();
    let [first, among_five] = recall(&tools, questions.iter());
    println!("{} questions: {:?}", questions.len(), clock.elapsed());
    println!("first {first:.2} %, among five {among_five:.2} %");
    for half in 0..2 {
        let of_half = questions.iter().skip(half).step_by(2);
        let [first, among_five] = recall(&tools, of_half);
        println!("half {}: first {first:.2} %, among five {among_five:.2} %", half + 1);
    }
    let (mut more, other_questions) = read("cases.jsonl");
    for tool in
        tools.definitions().iter().filter(|tool| more.get(tool.name()).is_none()).cloned().collect::<Vec<_>>()
    {
        more = more.with(Defined(tool)).unwrap();
    }
    let [other_first, other_among_five] = recall(&more, other_questions.iter());
    println!("cases: first {other_first:.2} %, among five {other_among_five:.2} %");
    // Plain BM25 reaches 78 and 94.
    assert!(first >= 81.0 && among_five >= 96.0, "first {first:.2} %, among five {among_five:.2} %");
}

/// The bytes of the definitions in a request.
fn bytes(request: &ChatRequest<'_>) -> usize {
    request.tools().iter().map(|tool| serde_json::to_string(tool).unwrap().len()).sum()
}

#[tokio::test]
#[ignore = "needs ../shared/bfcl"]
async fn requests_have_a_tenth_of_the_definitions_at_most() {
    let (tools, questions) = read("search.jsonl");
    let whole: usize =
        tools.definitions().iter().map(|tool| serde_json::to_string(tool).unwrap().len()).sum();
    for search in [ToolSearch::bm25(), ToolSearch::bm25().call_through()] {
        let (sent, runs): (Arc<Mutex<usize>>, usize) = (Arc::default(), 20);
        for question in questions.iter().step_by(questions.len() / runs) {
            let record = || {
                let sent = Arc::clone(&sent);
                move |request: &ChatRequest<'_>| {
                    // What was found is in the tools or, called through, in the result.
                    *sent.lock().unwrap() += bytes(request) + request.messages().last().unwrap().text().len();
                    true
                }
            };
            let query = serde_json::json!({ "query": question.text }).to_string();
            let model = ScriptedModel::new()
                .expects(record())
                .calls("search_tools", query)
                .expects(record())
                .says("Done.");
            let agent = Agent::builder(model).tools(&tools).tool_search(search.clone()).build().unwrap();
            agent.ask(&*question.text).await.unwrap();
        }
        let (sent, without) = (*sent.lock().unwrap(), whole * 2 * runs);
        let saved = 100.0 - 100.0 * sent as f64 / without as f64;
        println!("{search:?}: {sent} bytes in place of {without}, {saved:.2} % saved");
        assert!(saved >= 90.0, "{saved:.2} %");
    }
}
