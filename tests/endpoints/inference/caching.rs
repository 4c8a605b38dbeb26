//! The server's prefix cache: a long run reads from it what the report of the run predicts.

use tool_core::layer::rewrite;
use tool_core::model::ToolChoice;
use tool_core::run::StopReason;
use tool_core::{Agent, RunErrorKind, tools};

use super::agents::{Seen, get_tide};
use super::server::OwnServer;
use super::{at, seeded};

/// The number of tokens at the end of a request that the server always computes again.
const RECOMPUTED: u64 = 8;

#[tokio::test]
#[ignore = "needs a server of llama.cpp, which `tests/endpoints/inference/run` starts"]
async fn a_long_run_reads_from_the_cache_what_its_report_predicts() {
    let server = OwnServer::start();
    let model = at(&server.base_url).build().unwrap().chat_model("babbler");
    let agent = Agent::builder(model)
        .tools(tools![get_tide])
        .context(Seen::default())
        .parallel_tool_calls(false)
        .limits(|l| l.max_turns(30).max_repeated_calls(99))
        .layer(rewrite::request_with_context(|request, at| {
            request.with_tool_choice(ToolChoice::Required).with_options(seeded(i64::from(at.turn)))
        }))
        .track_cache()
        .build()
        .unwrap();
    let error = agent.ask("When is high tide?").await.unwrap_err();
    assert!(matches!(error.kind(), RunErrorKind::Stopped(StopReason::MaxTurns(30))), "{error}");
    let uses = error.run().cache();
    assert_eq!(uses.len(), 30);
    assert!(uses[1..].iter().all(|one| one.expected_tokens > 0), "{uses:?}");
    let lost: Vec<_> = uses.iter().filter(|one| one.lost_tokens() > RECOMPUTED).collect();
    assert!(lost.is_empty(), "{lost:?}");
}
