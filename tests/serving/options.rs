//! The model options that callers set.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, ModelOptions};
use tool_openai::server::Server;

use crate::caller::{Answer, Caller};
use crate::callers_tools::APIS;

/// The options that both APIs have.
fn request(api: &str, options: &ModelOptions) -> Value {
    let mut body = serde_json::to_value(options).unwrap();
    body["model"] = json!("m");
    if api == "responses" {
        body["input"] = json!("Hi");
        if let Some(effort) = body.as_object_mut().unwrap().remove("reasoning_effort") {
            body["reasoning"] = json!({ "effort": effort });
        }
    } else {
        body["messages"] = json!([{ "role": "user", "content": "Hi" }]);
        if let Some(tokens) = body.as_object_mut().unwrap().remove("max_output_tokens") {
            body["max_completion_tokens"] = tokens;
        }
    }
    body
}

/// Sends a request to a server for a model that records its options. Also returns the answer.
async fn send(
    api: &str,
    server: impl FnOnce(ScriptedModel) -> Server,
    sent: &ModelOptions,
) -> (Option<ModelOptions>, Answer) {
    let seen = Arc::new(Mutex::new(None));
    let recorded = Arc::clone(&seen);
    let model = ScriptedModel::new().expects(move |request| {
        *recorded.lock().unwrap() = Some(request.options().clone());
        true
    });
    let answer = Caller::new(server(model.says("Hi."))).await.post(api, &request(api, sent)).await;
    (seen.lock().unwrap().take(), answer)
}

fn options() -> ModelOptions {
    ModelOptions::default()
}

#[tokio::test]
async fn callers_of_an_agent_only_tighten_its_options() {
    let all = options()
        .with_max_output_tokens(900)
        .with_temperature(1.5)
        .with_top_p(0.5)
        .with_user("u")
        .with_metadata("b", "2");
    let flex = options().with_service_tier("flex");
    // The options of the agent and of the request, and what the model receives or the parameter that is refused.
    let table = [
        (options(), all.clone(), Ok(all.clone())),
        (options().with_max_output_tokens(500), all.clone(), Ok(all.clone().with_max_output_tokens(500))),
        (options().with_max_output_tokens(950), all.clone(), Ok(all.clone())),
        (options().with_temperature(0.2), all.clone(), Ok(all.clone().with_temperature(0.2))),
        (
            options().with_metadata("a", "1"),
            options().with_metadata("b", "2"),
            Ok(options().with_metadata("a", "1")),
        ),
        (options().with_user("author"), options().with_user("caller"), Ok(options().with_user("author"))),
        (options(), options().with_service_tier("priority"), Err("service_tier")),
        (flex.clone(), options().with_service_tier("priority"), Err("service_tier")),
        (flex.clone(), flex.clone(), Ok(flex.clone())),
        (flex.clone(), options().with_service_tier("auto"), Ok(flex.clone())),
        (options(), options().with_reasoning_effort("high"), Err("reasoning_effort")),
        (
            options().with_reasoning_effort("low"),
            options().with_reasoning_effort("high"),
            Err("reasoning_effort"),
        ),
    ];
    for api in APIS {
        for (author, sent, expected) in &table {
            let server = |model| {
                Server::new().agent("m", Agent::builder(model).options(author.clone()).build().unwrap())
            };
            let (seen, answer) = send(api, server, sent).await;
            match expected {
                Ok(expected) => {
                    assert_eq!(
                        (seen.as_ref(), answer.status),
                        (Some(expected), 200),
                        "{api} {author:?} {sent:?}"
                    );
                }
                Err(param) => {
                    let param =
                        if api == "responses" { param.replace('_', ".") } else { (*param).to_owned() };
                    let param = param.replace("service.tier", "service_tier");
                    assert_eq!((seen, answer.status), (None, 400), "{api} {author:?} {sent:?}");
                    let error = &answer.body["error"];
                    let message = format!("callers cannot set `{param}` here; omit it");
                    assert_eq!((&error["param"], &error["message"]), (&json!(param), &json!(message)));
                }
            }
        }
    }
}

#[tokio::test]
async fn a_response_repeats_only_options_that_take_effect() {
    let author = options().with_temperature(0.2).with_max_output_tokens(500).with_metadata("team", "secret");
    let server = |model| Server::new().agent("m", Agent::builder(model).options(author).build().unwrap());
    let sent = options().with_temperature(1.5).with_max_output_tokens(900).with_top_p(0.5);
    let (_, answer) = send("responses", server, &sent).await;
    let repeated = ["temperature", "max_output_tokens", "top_p", "metadata"].map(|name| &answer.body[name]);
    assert_eq!(repeated, [&Value::Null, &json!(500), &json!(0.5), &json!({})]);
}

#[tokio::test]
async fn the_author_chooses_what_callers_set() {
    let author = options().with_max_output_tokens(500).with_reasoning_effort("low");
    let sent = options().with_max_output_tokens(900).with_reasoning_effort("high").with_temperature(1.0);
    for api in APIS {
        let server = |model| {
            let agent = Agent::builder(model).options(author.clone()).build().unwrap();
            Server::new().agent("m", agent).model_options(|sent, mut options| {
                options.reasoning_effort = sent.reasoning_effort.clone();
                options.temperature = None;
                options
            })
        };
        let (seen, _) = send(api, server, &sent).await;
        assert_eq!(seen, Some(options().with_max_output_tokens(500).with_reasoning_effort("high")), "{api}");
        // A model has all options of the request, unless the author chooses.
        let (seen, _) = send(api, |model| Server::new().model("m", model), &sent).await;
        assert_eq!(seen.as_ref(), Some(&sent), "{api}");
        let server = |model| Server::new().model("m", model).model_options(|_, options| options.with_seed(1));
        let (seen, _) = send(api, server, &sent).await;
        assert_eq!(seen, Some(sent.clone().with_seed(1)), "{api}");
    }
}

/// Options of a question take precedence over the options of every agent that takes the run over.
#[tokio::test]
async fn callers_set_no_options_of_agents_that_hand_off() {
    let sent = options().with_max_output_tokens(900).with_temperature(1.5);
    let author = options().with_max_output_tokens(5000);
    for api in APIS {
        let server = |model| {
            let other = Agent::builder(ScriptedModel::new()).build().unwrap();
            let agent = Agent::builder(model).options(author.clone()).handoff_to("other", "Other", &other);
            Server::new().agent("m", agent.build().unwrap())
        };
        let (seen, _) = send(api, server, &sent).await;
        assert_eq!(seen.as_ref(), Some(&author), "{api}");
    }
}
