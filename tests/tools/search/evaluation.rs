//! How often the right tool is found among many, measured with questions of the Berkeley function-calling leaderboard.
//!
//! `BFCL` names the folder of the questions. `SHOW_MISSED=1` prints those whose tool is not found.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

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
    let folder = std::env::var_os("BFCL").expect("`BFCL` names the folder of the questions");
    let text = fs::read_to_string(Path::new(&folder).join(file)).unwrap();
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

/// For each tool to be found, its place among the first five.
fn places(tools: &ToolSet, questions: &[Question]) -> Vec<Option<usize>> {
    let mut places = Vec::new();
    for question in questions {
        let found = tools.search(&question.text, 5);
        for answer in &question.answers {
            let place = found.iter().position(|tool| tool.name() == answer);
            if std::env::var_os("SHOW_MISSED").is_some() && place.is_none() {
                let names: Vec<_> = found.iter().map(|tool| tool.name()).collect();
                println!("{answer}: {}\n    {names:?}", question.text);
            }
            places.push(place);
        }
    }
    places
}

/// Prints and returns the share of tools that are first, and of those that are among the first five, in percent.
fn recall<'a>(name: &str, places: impl Iterator<Item = &'a Option<usize>>) -> [f64; 2] {
    let places: Vec<_> = places.collect();
    let percent = |count: usize| 100.0 * count as f64 / places.len() as f64;
    let first = percent(places.iter().filter(|place| ***place == Some(0)).count());
    let among_five = percent(places.iter().filter(|place| place.is_some()).count());
    println!("{name}: first {first:.2} %, among five {among_five:.2} %");
    [first, among_five]
}

#[test]
#[ignore = "needs the questions of a benchmark, in the folder that `BFCL` names"]
fn the_right_tool_is_among_the_first_five() {
    let (tools, questions) = read("search.jsonl");
    assert_eq!((tools.len(), questions.len()), (545, 400));
    let found = places(&tools, &questions);
    recall("one half", found.iter().step_by(2));
    recall("the other half", found.iter().skip(1).step_by(2));
    // Among more tools, questions that may need several of them.
    let (others, other_questions) = read("cases.jsonl");
    let missing = others.definitions().iter().filter(|tool| tools.get(tool.name()).is_none());
    let more = missing.fold(tools.clone(), |set, tool| set.with(Defined(tool.clone())).unwrap());
    recall("other questions", places(&more, &other_questions).iter());
    // Plain BM25 reaches 78 and 94.
    let [first, among_five] = recall("all", found.iter());
    assert!(first >= 83.0 && among_five >= 96.0, "first {first:.2} %, among five {among_five:.2} %");
}

/// The bytes of the definitions in a request.
fn bytes(request: &ChatRequest<'_>) -> usize {
    request.tools().iter().map(|tool| serde_json::to_string(tool).unwrap().len()).sum()
}

#[tokio::test]
#[ignore = "needs the questions of a benchmark, in the folder that `BFCL` names"]
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
