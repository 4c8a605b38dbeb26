//! Two processes that share the logins of a file or a database.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use tool_mcp::McpServer;
#[cfg(feature = "sqlite")]
use tool_mcp::oauth::SqliteCredentials;
use tool_mcp::oauth::{FileCredentials, Login, OAuth};

use super::support::{ROUTE, call, fake, finish};

/// The number of times that both processes renew at once.
const ROUNDS: usize = 200;

const PROCESSES: usize = 2;

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn server(url: &str, path: &str) -> McpServer {
    let oauth = OAuth::new(Login::route(ROUTE)).user("ada");
    let oauth = match path.ends_with(".json") {
        true => oauth.store(FileCredentials::new(path)),
        #[cfg(feature = "sqlite")]
        false => oauth.store(SqliteCredentials::open(path).await.unwrap()),
        #[cfg(not(feature = "sqlite"))]
        false => unreachable!("needs the feature `sqlite`"),
    };
    McpServer::http(url).oauth(oauth).trusted()
}

struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(url: &str, path: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "processes::one_of_the_processes",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .envs([("OAUTH_TEST_URL", url), ("OAUTH_TEST_FILE", path)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// Returns the result of a round.
    fn result(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the process has ended");
            // The test harness writes as well.
            if let Some((_, result)) = line.trim_end().split_once("result: ") {
                return result.to_owned();
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_renew_at_once_keep_their_login_in_a_file() {
    check("logins.json").await;
}

#[cfg(feature = "sqlite")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_that_renew_at_once_keep_their_login_in_a_database() {
    check("logins.db").await;
}

async fn check(name: &str) {
    let fake = fake().await;
    let folder = Folder(std::env::temp_dir().join(tool_http::random_id("tool_mcp_")));
    std::fs::create_dir(&folder.0).unwrap();
    let path = folder.0.join(name).to_str().unwrap().to_owned();
    finish(&fake, &server(&fake.url(), &path).await).await.unwrap();
    let url = fake.url();
    let mut processes: Vec<_> = (0..PROCESSES).map(|_| Process::start(&url, &path)).collect();
    for process in &mut processes {
        assert_eq!(process.result(), "connected");
    }
    for round in 0..ROUNDS {
        fake.expire_access_tokens();
        for process in &mut processes {
            process.input.write_all(b"\n").unwrap();
        }
        for process in &mut processes {
            assert_eq!(process.result(), "read: read", "round {round}");
        }
    }
    for process in processes {
        drop(process.input);
        let mut child = process.child;
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(fake.reused_refresh_tokens(), 0);
    // Each round has at least one renewal, and the login is one and the same.
    assert!((ROUNDS + 1..=ROUNDS * PROCESSES + 1).contains(&fake.requests("/token").len()));
    assert_eq!(fake.requests("/authorize").len(), 1);
}

#[tokio::test]
#[ignore = "needs the test that starts it"]
async fn one_of_the_processes() {
    let (url, path) = (std::env::var("OAUTH_TEST_URL").unwrap(), std::env::var("OAUTH_TEST_FILE").unwrap());
    let tools = server(&url, &path).await.connect().await.unwrap();
    println!("result: connected");
    let mut lines = std::io::stdin().lines();
    while let Some(Ok(_)) = lines.next() {
        match call(&tools, "read").await {
            Ok(text) => println!("result: {text}"),
            Err(error) => println!("result: {error}"),
        }
    }
}
