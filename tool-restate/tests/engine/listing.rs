//! What those who operate a server see of the runs of all agents.

use std::time::Duration;

use tool_core::run::Decision;
use tool_core::testing::ScriptedModel;
use tool_core::{Agent, tool, tools};
use tool_restate::{ListFilter, ListedStatus, RemoteOutcome, Worker};

use crate::support::{agent, answer, client, serve, unique};

#[tool("Pays", needs_approval)]
fn pay() -> &'static str {
    "paid"
}

fn admin() -> String {
    std::env::var("RESTATE_ADMIN").unwrap()
}

#[tokio::test]
#[ignore = "needs a Restate server"]
async fn runs_of_all_agents_are_listed_with_what_they_wait_for() {
    let names = ["payer's", "o'reader"].map(|name| unique(&name.replace('\'', "-")));
    let payer = ScriptedModel::new().calls("pay", "{}").says("Paid.");
    let payer = Agent::builder(payer).name(&*names[0]).tools(tools![pay]).build().unwrap();
    let reader = ScriptedModel::new().fails("down").fails("down").fails("down").says("Read.");
    let reader = Agent::builder(reader).name(&*names[1]).build().unwrap();
    let worker = Worker::new().agent(payer).agent(reader).model_patience(Duration::ZERO);
    let _worker = serve(worker).await;
    let (paying, reading) = (agent(&names[0]).ask("Pay").send().await.unwrap(), agent(&names[1]).ask("Read"));
    let RemoteOutcome::Waiting(waits) = paying.wait().await.unwrap() else { panic!("it waits") };
    let reading = reading.send().await.unwrap();
    assert!(matches!(reading.wait().await.unwrap(), RemoteOutcome::Paused(_)));

    let client = client();
    let listed = client.waiting(&admin()).await.unwrap();
    let status = |key: &str| listed.iter().find(|run| run.key == key).map(|run| run.status.clone());
    assert_eq!(status(paying.key()), Some(ListedStatus::Waiting(vec![waits[0].id.clone()])));
    let Some(ListedStatus::Paused(reason)) = status(reading.key()) else { panic!("{listed:?}") };
    assert!(reason.contains("down"), "{reason}");
    assert!(listed.iter().all(|run| run.age < Duration::from_secs(3_600)));

    paying.decide(&waits[0].id, Decision::approve()).await.unwrap();
    answer(&paying).await;
    let of_payer = ListFilter::new().agent(&*names[0]);
    let listed = client.list_runs(&admin(), &of_payer).await.unwrap();
    assert_eq!((listed.len(), &listed[0].status), (1, &ListedStatus::Ended));
    assert_eq!(client.list_runs(&admin(), &of_payer.open()).await.unwrap(), []);
    let nobodys = ListFilter::new().agent("nobody' OR '1' = '1");
    assert_eq!(client.list_runs(&admin(), &nobodys).await.unwrap(), []);
    reading.cancel().await.unwrap();
}
