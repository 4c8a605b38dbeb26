//! Tools of MCP servers, which ask people and become tasks.

use std::future::ready;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tool_core::Agent;
use tool_core::run::{Decision, StopReason};
use tool_core::testing::ScriptedModel;
use tool_mcp::McpServer;
use tool_restate::Worker;

use crate::agents::waits_of;
use crate::alike::timers;
use crate::support::{Mortal, agent, answer, failure, free_address, register_at, unique, until, within};

/// A server whose tool asks for a seat, and then becomes a task that is done when it is polled the second time, or never.
#[derive(Clone, Default)]
struct Bookings {
    is_slow: bool,
    received: Arc<Mutex<Vec<Value>>>,
}

impl Bookings {
    fn all(&self, method: &str) -> Vec<Value> {
        self.received.lock().unwrap().iter().filter(|message| message["method"] == method).cloned().collect()
    }

    fn count(&self, method: &str) -> usize {
        self.all(method).len()
    }

    /// Returns an agent with a connection of its own, as each process has.
    async fn agent(&self, name: &str, model: &ScriptedModel) -> Agent {
        let bookings = self.clone();
        let server = McpServer::connector("bookings", move || {
            let (near, far) = tokio::io::duplex(1 << 16);
            let (reader, writer) = tokio::io::split(far);
            tokio::spawn(bookings.clone().serve(reader, writer));
            ready(Ok(tokio::io::split(near)))
        });
        let tools = server.trusted().connect().await.unwrap().tools().await.unwrap();
        Agent::builder(model.clone()).name(name).tools(tools).build().unwrap()
    }

    async fn serve(
        self,
        reader: impl AsyncRead + Unpin,
        mut writer: impl AsyncWrite + Unpin,
    ) -> io::Result<()> {
        let mut lines = BufReader::new(reader).lines();
        while let Some(line) = lines.next_line().await? {
            let message: Value = serde_json::from_str(&line)?;
            self.received.lock().unwrap().push(message.clone());
            let Some(id) = message.get("id") else { continue };
            let mut response = json!({ "jsonrpc": "2.0", "id": id });
            match self.answer(&message) {
                Some(result) => response["result"] = result,
                None => response["error"] = json!({ "code": -32601, "message": "Method not found" }),
            }
            writer.write_all(format!("{response}\n").as_bytes()).await?;
        }
        Ok(())
    }

    /// Returns the result of a request, if it is known.
    fn answer(&self, message: &Value) -> Option<Value> {
        let list = |more: Value| with(more, "complete", json!({ "ttlMs": 0, "cacheScope": "private" }));
        let interval = if self.is_slow { 3_600_000 } else { 1_000 };
        let task = |kind: &str, status: &str, more: Value| {
            let at = "2026-11-27T00:00:00Z";
            let times =
                json!({ "createdAt": at, "lastUpdatedAt": at, "ttlMs": 60_000, "pollIntervalMs": interval });
            with(with(json!({ "taskId": "t-1", "status": status }), kind, times), kind, more)
        };
        Some(match message["method"].as_str()? {
            "server/discover" => {
                let capabilities =
                    json!({ "tools": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } });
                list(json!({ "supportedVersions": ["2026-07-28"], "capabilities": capabilities }))
            }
            "tools/list" => {
                let schema = json!({ "type": "object" });
                list(json!({ "tools": [{ "name": "book", "description": "Books", "inputSchema": schema }] }))
            }
            "tools/call" if message["params"]["inputResponses"].is_null() => {
                let schema = json!({ "type": "object", "properties": { "seat": { "type": "string" } } });
                let form = json!({ "mode": "form", "message": "Which seat?", "requestedSchema": schema });
                let seat = json!({ "method": "elicitation/create", "params": form });
                let asked = json!({ "inputRequests": { "seat": seat }, "requestState": "s-1" });
                with(asked, "input_required", json!({}))
            }
            "tools/call" => task("task", "working", json!({})),
            "tasks/get" if self.is_slow || self.count("tasks/get") < 2 => {
                task("complete", "working", json!({}))
            }
            "tasks/get" => {
                let result = json!({ "content": [{ "type": "text", "text": "booked" }] });
                task("complete", "completed", json!({ "result": result }))
            }
            "tasks/cancel" => with(json!({}), "complete", json!({})),
            _ => return None,
        })
    }
}

/// Returns a result of this kind with more members.
fn with(mut result: Value, kind: &str, more: Value) -> Value {
    result["resultType"] = kind.into();
    result.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    result
}

/// Each step of the call is taken by another process, with a connection of its own: the server gets the answer, and is polled at the
/// time that it has named. If the run is cancelled meanwhile, so is the task.
#[tokio::test]
#[ignore = "needs a Restate server"]
async fn a_call_asks_and_becomes_a_task() {
    for (is_local, is_slow) in [(false, false), (true, false), (false, true), (true, true)] {
        let (name, address) = (unique("clerk"), free_address());
        let bookings = Bookings { is_slow, ..Bookings::default() };
        let model = ScriptedModel::new().calls("book", "{}").says("Booked.");
        let start = async || {
            let worker = Worker::new().agent(bookings.agent(&name, &model).await);
            Mortal::start(if is_local { worker.local_calls() } else { worker }, address).await
        };
        let first = start().await;
        register_at(address).await;
        let run = agent(&name).ask("Book").send().await.unwrap();
        let wait = waits_of(&run, &["call_1_0"]).await.remove(0);
        assert_eq!(wait.question().unwrap().text(), "The server `bookings` asks: Which seat?");
        drop(first);
        let second = start().await;
        run.decide(&wait.id, Decision::answer(json!({ "seat": "12C" }))).await.unwrap();
        let is_parked = async {
            while timers(&name, &run).await == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        within("the timer of the call", is_parked).await;
        drop(second);
        let _third = start().await;
        if is_slow {
            run.cancel().await.unwrap();
            assert!(matches!(failure(&run).await.reason, Some(StopReason::Cancelled)));
            until("the task is cancelled", || bookings.count("tasks/cancel") > 0).await;
        } else {
            assert_eq!(answer(&run).await.tool_executions()[0].output().unwrap().to_string(), "booked");
        }
        let [_, answered] = &*bookings.all("tools/call") else { panic!("it is called twice") };
        let seat = json!({ "seat": { "action": "accept", "content": { "seat": "12C" } } });
        assert_eq!(answered["params"]["inputResponses"], seat);
        assert_eq!(answered["params"]["requestState"], "s-1");
        let polled_and_cancelled = (bookings.count("tasks/get"), bookings.count("tasks/cancel"));
        assert_eq!(polled_and_cancelled, if is_slow { (1, 1) } else { (2, 0) });
    }
}
