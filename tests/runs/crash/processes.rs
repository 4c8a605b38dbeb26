//! Lives that are processes: this test binary, started with an order in its environment.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tests::support::sampling::size;
use tests::support::stores::AnyStore;
use tool_core::SqliteStore;

use super::life::{Way, live, wait_for};
use super::scenario::Variant;
use super::witness::{End, Witness};
use super::world::{self, Dice, World};
use super::{NEVER, directory, remember_history, undisturbed};

/// The environment variable with the order of a process: the variant of the run, the way of driving it, the number of
/// points that it passes, and the directory of its files.
const ORDER: &str = "TOOL_CRASH_ORDER";

/// The path of [`one_life`].
const ONE_LIFE: &str = "crash::processes::one_life";

#[test]
#[ignore = "needs an order: the other test starts it in a process"]
fn one_life() {
    let order = std::env::var(ORDER).unwrap();
    let words: Vec<_> = order.splitn(4, ' ').collect();
    let [variant, way, fuse, directory] = words[..] else { panic!("{order}") };
    let variant = Variant::ALL[variant.parse::<usize>().unwrap()];
    let way = Way::ALL[way.parse::<usize>().unwrap()];
    let directory = Path::new(directory);
    let log = directory.join("log");
    let world = World::new(fuse.parse().unwrap(), world::End::Process, &log);
    let outcome = wait_for(async {
        let store: AnyStore = Arc::new(SqliteStore::open(directory.join("store.db")).await.unwrap());
        live(variant, way, &store, &world, &log).await
    });
    let Some(outcome) = outcome else { return };
    let End { text, messages, is_answer, undone } = End::new(&outcome);
    let end = json!({ "text": text, "messages": messages, "is_answer": is_answer, "undone": undone });
    // The file is written atomically, as the process may be killed here.
    std::fs::write(directory.join("part"), end.to_string()).unwrap();
    std::fs::rename(directory.join("part"), directory.join("end")).unwrap();
}

fn start(variant: Variant, way: u64, fuse: i64, directory: &Path) -> Child {
    let variant = Variant::ALL.iter().position(|one| *one == variant).unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", ONE_LIFE, "--nocapture", "--test-threads=1"])
        .env(ORDER, format!("{variant} {way} {fuse} {}", directory.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// Reads the end of the run that a surviving process has written.
fn end(directory: &Path) -> Option<End> {
    let text = std::fs::read_to_string(directory.join("end")).ok()?;
    let end: serde_json::Value = serde_json::from_str(&text).unwrap();
    Some(End {
        text: end["text"].as_str().unwrap().to_owned(),
        messages: serde_json::from_value(end["messages"].clone()).unwrap(),
        is_answer: end["is_answer"].as_bool().unwrap(),
        undone: serde_json::from_value(end["undone"].clone()).unwrap(),
    })
}

#[test]
fn a_run_survives_killed_processes_at_any_point() {
    let mut dice = Dice::new(7);
    let expected = Variant::ALL.map(|one| (one, undisturbed(one, Way::Awaited)));
    let mut killed = 0;
    let mut longest = Duration::from_millis(20);
    while killed < size(10, 50) {
        let (variant, expected) = &expected[dice.below(3) as usize];
        let directory = directory();
        let log = directory.join("log");
        // The store is reopened for each check, as only its file outlives a process.
        let store =
            || -> AnyStore { Arc::new(wait_for(SqliteStore::open(directory.join("store.db"))).unwrap()) };
        wait_for(remember_history(&store()));
        let mut witness = Witness::new(*variant, expected.clone(), store(), &log);
        loop {
            let from_outside = dice.below(2) == 0;
            let fuse = if from_outside { NEVER } else { dice.below(80) as i64 };
            let clock = Instant::now();
            let mut process = start(*variant, dice.below(3), fuse, &directory);
            if from_outside {
                std::thread::sleep(longest.mul_f64(dice.below(100) as f64 / 100.0));
                process.kill().unwrap();
            }
            let status = process.wait().unwrap();
            witness.check();
            match status.code() {
                // Killed by a signal.
                None => killed += 1,
                Some(0) => {
                    longest = longest.max(clock.elapsed().min(Duration::from_secs(1)));
                    break;
                }
                Some(other) => panic!("a life failed with {other}: {}", directory.display()),
            }
        }
        witness.conclude(end(&directory));
    }
}
