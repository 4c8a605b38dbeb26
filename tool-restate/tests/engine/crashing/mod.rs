//! Workers and the server fail again and again while runs go on and a new program is deployed: each run ends as an undisturbed one does.
//!
//! Workers are killed, vanish with their connections open, and freeze; the server is killed. `CRASH_RUNS` is the number of runs, and
//! `CRASH_SERVER_KILLS` how often the server dies; `CRASH_SEED` repeats an order of failures, `CRASH_SECONDS` limits the time,
//! and with `CRASH_LOCAL_CALLS`, calls are local. Each execution writes lines into a file: when it begins, when it takes effect, and
//! when it ends. A call may be executed again only if a failure explains it.

mod check;
mod scenario;
mod world;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use tool_core::Event;
use tool_core::run::Decision;
use tool_restate::{Client, Error, ErrorKind, RemoteOutcome, RemoteRun, register};

use self::check::{Ended, check, check_conversation};
use self::scenario::{CASES, Case, End, Person, now};
use self::world::{Death, Member, Server, balance};
use crate::support::free_address;

fn is_unreachable(error: &Error) -> bool {
    // A server that starts does not know its services yet.
    matches!(
        error.kind(),
        ErrorKind::Connect | ErrorKind::Server | ErrorKind::UnknownAgent | ErrorKind::Timeout
    )
}

async fn patiently<T, F: Future<Output = Result<T, Error>>>(
    mut request: impl FnMut() -> F,
) -> Result<T, Error> {
    loop {
        match request().await {
            Err(error) if is_unreachable(&error) => tokio::time::sleep(Duration::from_millis(100)).await,
            other => return other,
        }
    }
}

const CONVERSATIONS: usize = 3;

fn conversation_of(number: usize) -> String {
    format!("talk-{}", number / CASES.len() % CONVERSATIONS)
}

/// Half of the runs publish their events.
fn has_events(number: usize) -> bool {
    (number / CASES.len()).is_multiple_of(2)
}

/// In some of the rounds, another agent asks the clerk as its tool.
fn is_inside(number: usize) -> bool {
    let case = Case::of(number);
    case.end == End::Answer && !case.converses && number / CASES.len() % 3 == 2
}

/// Asks the question with this number, and does what its person does, until the run has ended.
async fn drive(client: Client, effects: PathBuf, number: usize) -> Ended {
    let case = Case::of(number);
    let clerk = client.agent(if is_inside(number) { "desk" } else { "clerk" });
    let send = || {
        let mut question = clerk.ask(case.question(number)).key(format!("r{number}"));
        if case.converses {
            question = question.conversation(conversation_of(number));
        }
        if has_events(number) {
            question = question.events();
        }
        question.send()
    };
    let run: RemoteRun = patiently(send).await.unwrap();
    if case.person == Person::Cancels {
        let begun = format!("r{number} hang10 begin ");
        while !fs::read_to_string(&effects).unwrap().contains(&begun) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for _ in 0..2 {
            patiently(|| run.cancel()).await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let mut decided_at = None;
    let outcome = loop {
        match patiently(|| run.wait()).await.unwrap() {
            // It waits until it is cancelled.
            RemoteOutcome::Waiting(_) if case.person == Person::Cancels => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            RemoteOutcome::Waiting(waits) => {
                decided_at.get_or_insert_with(now);
                let approval = || match case.person {
                    Person::Denies => Decision::deny("no"),
                    _ => Decision::approve(),
                };
                match patiently(|| run.decide(&waits[0].id, approval())).await {
                    Ok(_) => {}
                    // The server was killed between the decision and its acknowledgement.
                    Err(error) => assert_eq!(error.kind(), ErrorKind::AlreadyDecided, "{error}"),
                }
            }
            ended => break ended,
        }
    };
    let mut events = Vec::new();
    if has_events(number) {
        let mut reader = run.events(0);
        loop {
            match reader.next().await {
                Ok(Some(record)) => events.push(record.event),
                Ok(None) => break,
                Err(error) if is_unreachable(&error) => tokio::time::sleep(Duration::from_millis(100)).await,
                Err(error) => panic!("r{number}: {error}"),
            }
        }
        assert!(matches!(events.last(), Some(Event::Done(_) | Event::Failed(_))), "r{number}: {events:?}");
    }
    if !is_inside(number) {
        return Ended { outcome, decided_at, events };
    }
    // What was recorded and read of the run inside.
    let RemoteOutcome::Answer(outer) = outcome else { panic!("r{number}: {outcome:?}") };
    let answer = outer.inner_runs()[0].run().clone().finish().unwrap();
    assert_eq!(outer.text(), answer.text(), "r{number}");
    let events = events.into_iter().filter_map(|event| match event {
        Event::Agent { event, .. } => Some(*event),
        Event::Done(_) => Some(event),
        _ => None,
    });
    Ended { outcome: RemoteOutcome::Answer(answer), decided_at, events: events.collect() }
}

fn number_of(variable: &str, default: usize) -> usize {
    env::var(variable).map_or(default, |value| value.parse().unwrap())
}

/// A source of numbers; the seed is printed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a Restate server"]
async fn runs_survive_their_workers_and_the_server() {
    let runs = number_of("CRASH_RUNS", 200);
    let server_kills = number_of("CRASH_SERVER_KILLS", 20);
    let seed = number_of("CRASH_SEED", std::process::id() as usize) as u64;
    let most_time = Duration::from_secs(number_of("CRASH_SECONDS", 300) as u64);
    println!("seed {seed}");
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("crash-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let effects = directory.join("effects");
    fs::write(&effects, "").unwrap();
    let server = Server {
        directory: directory.clone(),
        ingress: free_address(),
        admin: free_address(),
        node: free_address(),
    };
    let mut engine = server.start();
    server.wait().await;
    let admin = format!("http://{}", server.admin);

    let deploy = async |program: &'static str| {
        let members = [Member::start(program, &effects), Member::start(program, &effects)];
        for member in &members {
            member.wait().await;
        }
        let uri = balance(&members).await;
        register(&admin, &uri).await.unwrap();
        members
    };
    let mut members = Vec::from(deploy("old").await);

    let client = Client::connect(&format!("http://{}", server.ingress)).unwrap();
    let client = client.timeout(Duration::from_secs(10));
    let ended: Arc<Mutex<BTreeMap<usize, Ended>>> = Arc::default();
    let (results, seen, reader) = (Arc::clone(&ended), effects.clone(), client.clone());
    let driving = tokio::spawn(async move {
        let driven = (0..runs).map(|number| {
            let driven = drive(client.clone(), seen.clone(), number);
            async move { (number, driven.await) }
        });
        let mut driven = stream::iter(driven).buffer_unordered(16);
        while let Some((number, ended)) = driven.next().await {
            results.lock().unwrap().insert(number, ended);
        }
    });

    let mut dice = Dice(seed);
    let mut deaths: Vec<Death> = Vec::new();
    let mut server_deaths = 0;
    let started = Instant::now();
    while !driving.is_finished() {
        tokio::time::sleep(Duration::from_millis(100 + dice.below(700))).await;
        let done = ended.lock().unwrap().len();
        if members.len() == 2 && done * 3 >= runs {
            members.extend(deploy("new").await);
        }
        let number = dice.below(members.len() as u64);
        let victim = &mut members[usize::try_from(number).unwrap()];
        deaths.push(match dice.below(5) {
            0 => victim.vanish(&effects).await,
            1 => victim.freeze(Duration::from_millis(200 + dice.below(1300))).await,
            _ => victim.kill(&effects).await,
        });
        // The deaths of the server are spread over the runs.
        if server_deaths < server_kills && done * (server_kills + 1) >= runs * (server_deaths + 1) {
            engine.kill().await.unwrap();
            server_deaths += 1;
            deaths.push(Death::at_once("death of the server", None));
            engine = server.start();
            server.wait().await;
        }
        assert!(started.elapsed() < most_time, "{done} of {runs} runs ended, seed {seed}");
    }
    driving.await.unwrap();
    println!("{runs} runs, {:?}", started.elapsed());
    check(&ended.lock().unwrap(), runs, &fs::read_to_string(&effects).unwrap(), &deaths);
    for conversation in 0..CONVERSATIONS.min(runs) {
        check_conversation(&reader, conversation, runs).await;
    }
    drop((engine, members));
    fs::remove_dir_all(&directory).unwrap();
}
