//! Lives that are processes: this very program, started with an order in its environment.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use tests::support::sampling::size;
use tool_core::SqliteStore;

use super::life::{Way, live, wait_for};
use super::scenario::Variant;
use super::witness::{End, Witness};
use super::world::{self, Dice, World};
use super::{NEVER, place, remember_history, undisturbed};

/// What a process is told: where its files are, which run, how it is driven, how far it comes.
const ORDER: &str = "TOOL_CRASH_ORDER";

/// The path of [`one_life`].
const ONE_LIFE: &str = "crash::processes::one_life";

#[test]
#[ignore = "needs an order: the other test starts it in processes of its own"]
fn one_life() {
    let order = std::env::var(ORDER).unwrap();
    let words: Vec<_> = order.splitn(4, ' ').collect();
    let [variant, way, fuse, place] = words[..] else { panic!("{order}") };
    let variant = Variant::ALL[variant.parse::<usize>().unwrap()];
    let way = Way::ALL[way.parse::<usize>().unwrap()];
    let place = Path::new(place);
    let log = place.join("log");
    let world = World::new(fuse.parse().unwrap(), world::End::Process, &log);
    let outcome = wait_for(async {
        let store = SqliteStore::open(place.join("store.db")).await.unwrap();
        live(variant, way, &store, &world, &log).await
    });
    let Some(outcome) = outcome else { return };
    let End { text, messages, is_answer, undone } = End::of(&outcome);
    let end = json!({ "text": text, "messages": messages, "is_answer": is_answer, "undone": undone });
    // Whole or not at all, as this may be where it is killed.
    std::fs::write(place.join("part"), end.to_string()).unwrap();
    std::fs::rename(place.join("part"), place.join("end")).unwrap();
}

fn start(variant: Variant, way: u64, fuse: i64, place: &Path) -> Child {
    let variant = Variant::ALL.iter().position(|one| *one == variant).unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", ONE_LIFE, "--nocapture", "--test-threads=1"])
        .env(ORDER, format!("{variant} {way} {fuse} {}", place.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap()
}

/// What the process came to that was not killed.
fn end(place: &Path) -> Option<End> {
    let text = std::fs::read_to_string(place.join("end")).ok()?;
    let end: serde_json::Value = serde_json::from_str(&text).unwrap();
    Some(End {
        text: end["text"].as_str().unwrap().to_owned(),
        messages: serde_json::from_value(end["messages"].clone()).unwrap(),
        is_answer: end["is_answer"].as_bool().unwrap(),
        undone: serde_json::from_value(end["undone"].clone()).unwrap(),
    })
}

#[test]
fn a_run_whose_process_is_killed_anywhere_comes_to_the_same() {
    let mut dice = Dice::new(7);
    let expected = Variant::ALL.map(|one| (one, undisturbed(one, Way::Awaited)));
    let mut killed = 0;
    let mut longest = Duration::from_millis(20);
    while killed < size(10, 50) {
        let (variant, expected) = &expected[dice.below(3) as usize];
        let place = place();
        let log = place.join("log");
        // Opened anew for each look, as nothing of the store outlasts a process but its file.
        let store = || wait_for(SqliteStore::open(place.join("store.db"))).unwrap();
        wait_for(remember_history(&store()));
        let mut witness = Witness::new(*variant, expected.clone(), store(), &log);
        loop {
            let from_outside = dice.below(2) == 0;
            let fuse = if from_outside { NEVER } else { dice.below(80) as i64 };
            let clock = Instant::now();
            let mut process = start(*variant, dice.below(3), fuse, &place);
            if from_outside {
                std::thread::sleep(longest.mul_f64(dice.below(100) as f64 / 100.0));
                process.kill().unwrap();
            }
            let status = process.wait().unwrap();
            witness.look();
            match status.code() {
                // By a signal.
                None => killed += 1,
                Some(0) => {
                    longest = longest.max(clock.elapsed().min(Duration::from_secs(1)));
                    break;
                }
                Some(other) => panic!("a life failed with {other}: {}", place.display()),
            }
        }
        witness.conclude(end(&place));
    }
}
