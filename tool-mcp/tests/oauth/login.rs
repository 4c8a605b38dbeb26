//! Who logs in how, as which client, and how long a login lasts.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tool_core::store::StoreFuture;
use tool_mcp::oauth::{
    Credential, CredentialKey, CredentialLock, CredentialStore, InMemoryCredentials, Login, OAuth,
};
use tool_mcp::{McpErrorKind, McpServer};

use super::support::{
    ROUTE, call, call_error, fake, finish, logged_in, parameter, problem, route_server, willing_user,
    with_parameter,
};

#[tokio::test]
async fn a_user_of_this_machine_logs_in_while_connecting() {
    let fake = fake().await;
    let (login, logins) = willing_user(&fake);
    let store = InMemoryCredentials::default();
    let oauth = OAuth::new(login).client_name("My program").store(store.clone());
    let server = McpServer::http(fake.url()).oauth(oauth.clone()).trusted();
    let tools = server.connect().await.unwrap();
    assert_eq!(call(&tools, "read").await.unwrap(), "read: read");

    let registration: Value = serde_json::from_str(&fake.requests("/register")[0]).unwrap();
    assert_eq!(registration["application_type"], "native");
    assert_eq!(registration["client_name"], "My program");
    let request = &fake.requests("/authorize")[0];
    let redirect_uri = parameter(request, "redirect_uri").unwrap();
    assert_eq!(registration["redirect_uris"], json!([redirect_uri]));
    assert!(redirect_uri.starts_with("http://127.0.0.1:") && redirect_uri.ends_with("/callback"));
    // The challenge names `read` alone, and the metadata more.
    assert_eq!(parameter(request, "scope").unwrap(), "read");
    assert_eq!(parameter(request, "code_challenge_method").unwrap(), "S256");
    for request in [request, &fake.requests("/token")[0]] {
        assert_eq!(parameter(request, "resource").unwrap(), fake.url());
    }

    // Another process with the same store.
    let tools = McpServer::http(fake.url()).oauth(oauth).trusted().connect().await.unwrap();
    assert_eq!(call(&tools, "read").await.unwrap(), "read: read");
    assert_eq!((logins.load(Ordering::SeqCst), fake.requests("/token").len()), (1, 1));
}

#[tokio::test]
async fn a_user_of_another_machine_pastes_the_redirect() {
    let fake = fake().await;
    let user = Arc::clone(&fake);
    let login = Login::paste("http://127.0.0.1/callback", move |login| {
        let user = Arc::clone(&user);
        async move {
            assert_eq!((&*login.server, &*login.issuer), (&*user.url(), &*user.issuer()));
            assert_eq!(login.scopes, ["read"]);
            Ok(format!(" {}\n", user.approve(&login.url).await?))
        }
    });
    let tools = McpServer::http(fake.url()).oauth(OAuth::new(login)).trusted().connect().await.unwrap();
    assert_eq!(call(&tools, "read").await.unwrap(), "read: read");

    let login = Login::paste("http://127.0.0.1/callback", async |_| Err(std::io::Error::other("closed")));
    let error =
        McpServer::http(fake.url()).name("tickets").oauth(OAuth::new(login)).connect().await.unwrap_err();
    let problem = problem(&error, McpErrorKind::LoginRefused);
    assert_eq!(problem, "cannot be authorized: no redirect was given: closed");
}

#[tokio::test]
async fn a_route_finishes_a_login_once_for_the_user_that_started_it() {
    let fake = fake().await;
    let store = InMemoryCredentials::default();
    let of = |user| {
        let oauth = OAuth::new(Login::route(ROUTE)).store(store.clone()).user(user);
        McpServer::http(fake.url()).name("tickets").oauth(oauth).trusted()
    };
    let error = of("ada").connect().await.unwrap_err();
    let expected = "requires a login: nobody has logged in; start one with `McpServer::start_login`, or set `Login::page`, so that runs \
                    wait for it";
    assert_eq!(problem(&error, McpErrorKind::LoginRequired), expected);

    let url = of("ada").start_login().await.unwrap().unwrap();
    let redirect = fake.approve(&url).await.unwrap();
    let error = of("grace").finish_login(&redirect).await.unwrap_err();
    let expected = "cannot be authorized: the redirect is of the login of another user or server";
    assert_eq!(problem(&error, McpErrorKind::Unauthorized), expected);
    // A server has only the path and the query of a request.
    let path = redirect.strip_prefix("https://app.example").unwrap();
    of("ada").finish_login(path).await.unwrap();
    let error = of("ada").finish_login(&redirect).await.unwrap_err();
    let expected = "cannot be authorized: the redirect is of no login that was started and is not finished; log in again";
    assert_eq!(problem(&error, McpErrorKind::Unauthorized), expected);

    assert_eq!(of("ada").start_login().await.unwrap(), None);
    assert_eq!(call(&of("ada").connect().await.unwrap(), "read").await.unwrap(), "read: read");
    assert_eq!(of("grace").connect().await.unwrap_err().kind(), McpErrorKind::LoginRequired);
}

/// Otherwise everybody could finish the login that another user started.
#[tokio::test]
async fn a_route_needs_a_user() {
    let fake = fake().await;
    let (server, store) =
        (route_server(&fake, InMemoryCredentials::default()), InMemoryCredentials::default());
    let url = server.start_login().await.unwrap().unwrap();
    let redirect = fake.approve(&url).await.unwrap();
    let server =
        McpServer::http(fake.url()).name("tickets").oauth(OAuth::new(Login::route(ROUTE)).store(store));
    let expected =
        "cannot be authorized: `Login::route` needs the user of the browser's session; set `OAuth::user`";
    assert_eq!(problem(&server.start_login().await.unwrap_err(), McpErrorKind::Unauthorized), expected);
    assert_eq!(
        problem(&server.finish_login(&redirect).await.unwrap_err(), McpErrorKind::Unauthorized),
        expected
    );
}

#[tokio::test]
async fn a_redirect_can_report_that_the_login_was_refused() {
    let fake = fake().await;
    for (code, kind) in [
        ("access_denied", McpErrorKind::LoginRefused),
        ("invalid_scope", McpErrorKind::LoginRefused),
        // Nobody has decided anything.
        ("server_error", McpErrorKind::Unauthorized),
        ("temporarily_unavailable", McpErrorKind::Unauthorized),
    ] {
        let server = route_server(&fake, InMemoryCredentials::default());
        let url = server.start_login().await.unwrap().unwrap();
        let redirect = with_parameter(&fake.approve(&url).await.unwrap(), "code", None);
        let error = server.finish_login(&format!("{redirect}&error={code}")).await.unwrap_err();
        let problem = problem(&error, kind);
        assert_eq!(problem, format!("cannot be authorized: the login was refused: {code}"));
    }
}

#[tokio::test]
async fn a_registered_client_comes_before_a_document_and_a_registration() {
    let document = "https://app.example/client.json";
    for (id, secret, method) in [
        ("desk", None, "none"),
        ("desk app", Some("a secret+"), "client_secret_basic"),
        ("desk", Some("secret"), "client_secret_post"),
        (document, None, "none"),
    ] {
        let fake = fake().await;
        fake.set_metadata("token_endpoint_auth_methods_supported", json!([method]));
        let mut oauth = OAuth::new(willing_user(&fake).0).client_metadata_url(document);
        if id != document {
            fake.add_client(id, secret);
            oauth = match secret {
                Some(secret) => oauth.confidential_client(fake.issuer(), id, secret),
                None => oauth.client(fake.issuer(), id),
            };
        }
        // It is never used here.
        oauth = oauth.confidential_client("https://other.example", "other", "other-secret");
        let tools = McpServer::http(fake.url()).oauth(oauth).trusted().connect().await.unwrap();
        fake.expire_access_tokens();
        assert_eq!(call(&tools, "read").await.unwrap(), "read: read");
        assert_eq!(parameter(&fake.requests("/authorize")[0], "client_id").as_deref(), Some(id));
        assert_eq!(fake.requests("/register"), [""; 0]);
        for request in fake.requests("/token") {
            assert_eq!(parameter(&request, "client_secret").is_some(), method == "client_secret_post");
        }
    }
}

#[tokio::test]
async fn a_login_replaces_a_fixed_token() {
    let fake = fake().await;
    let (server, _) = logged_in(&fake).await;
    let tools = server.bearer_token("sk-fixed-token").connect().await.unwrap();
    assert_eq!(call(&tools, "read").await.unwrap(), "read: read");
    let server = McpServer::http(fake.url()).name("tickets").bearer_token("sk-fixed-token");
    let problem = problem(&server.connect().await.unwrap_err(), McpErrorKind::Unauthorized);
    let expected = "rejected the authorization (HTTP 401); set a valid token with `bearer_token`, or log in with `oauth`";
    assert_eq!(problem, expected);
}

#[tokio::test]
async fn a_server_without_registration_needs_a_registered_client() {
    let fake = fake().await;
    fake.set_metadata("registration_endpoint", Value::Null);
    let error = route_server(&fake, InMemoryCredentials::default()).start_login().await.unwrap_err();
    let expected = format!(
        "cannot be authorized: the authorization server `{}` registers no clients; register one with its operator and set \
         `OAuth::client`",
        fake.issuer()
    );
    assert_eq!(problem(&error, McpErrorKind::Unauthorized), expected);
}

#[tokio::test]
async fn a_program_uses_its_own_credentials() {
    let fake = fake().await;
    fake.add_client("report", Some("secret"));
    let oauth = OAuth::client_credentials(fake.issuer(), "report", "secret");
    let server = McpServer::http(fake.url()).name("tickets").trusted();
    let tools = server.clone().oauth(oauth.clone()).connect().await.unwrap();
    let error = call_error(&tools, "write").await;
    let expected = "cannot be authorized: the scope `write` is needed; allow it with `OAuth::scopes`";
    assert_eq!(problem(&error, McpErrorKind::Unauthorized), expected);
    let oauth = oauth.scopes(["read", "write"]);
    let tools = server.oauth(oauth).connect().await.unwrap();
    fake.expire_access_tokens();
    assert_eq!(call(&tools, "read").await.unwrap(), "read: read write");
    assert_eq!(call(&tools, "write").await.unwrap(), "write: read write");
    let requests = fake.requests("/token");
    let scopes: Vec<_> = requests.iter().map(|body| parameter(body, "scope")).collect();
    let both = Some("read write".to_owned());
    assert_eq!(scopes, [None, both.clone(), both]);
    assert!(requests.iter().all(|body| body.contains("grant_type=client_credentials")));

    for other in ["https://other.example".to_owned(), format!("{}/", fake.issuer())] {
        let oauth = OAuth::client_credentials(&other, "report", "secret");
        let error = McpServer::http(fake.url()).name("tickets").oauth(oauth).connect().await.unwrap_err();
        let expected = format!(
            "cannot be authorized: its authorization server is `{}`, and the client is one of `{other}`; issuers are compared exactly",
            fake.issuer()
        );
        assert_eq!(problem(&error, McpErrorKind::Unauthorized), expected);
    }
}

#[tokio::test]
async fn further_scopes_are_added_to_those_of_the_login() {
    let fake = fake().await;
    let (login, logins) = willing_user(&fake);
    let oauth = OAuth::new(login);
    let tools = McpServer::http(fake.url()).oauth(oauth).trusted().connect().await.unwrap();
    // Two calls at once ask the user once.
    let (one, other) = tokio::join!(call(&tools, "write"), call(&tools, "write"));
    assert_eq!((one.unwrap(), other.unwrap()), ("write: read write".into(), "write: read write".into()));
    assert_eq!(logins.load(Ordering::SeqCst), 2);
    assert_eq!(parameter(&fake.requests("/authorize")[1], "scope").unwrap(), "read write");
}

/// The server asks for others, in its metadata and in its challenges.
#[tokio::test]
async fn the_author_decides_about_the_scopes() {
    let fake = fake().await;
    fake.set_metadata("scopes_supported", json!(["offline_access"]));
    let (login, logins) = willing_user(&fake);
    let oauth = OAuth::new(login).scopes(["report", "read"]);
    let server = McpServer::http(fake.url()).name("tickets").oauth(oauth).trusted();
    let tools = server.connect().await.unwrap();
    assert_eq!(parameter(&fake.requests("/authorize")[0], "scope").as_deref(), Some("report read"));
    let problem = problem(&call_error(&tools, "write").await, McpErrorKind::Unauthorized);
    assert!(problem.ends_with("the scope `write` is needed; allow it with `OAuth::scopes`"), "{problem}");
    assert_eq!(logins.load(Ordering::SeqCst), 1);
}

/// A server can answer a token that has expired with anything.
#[tokio::test]
async fn a_token_is_renewed_before_the_request_once_it_has_expired() {
    for is_program in [false, true] {
        let fake = fake().await;
        fake.add_client("report", Some("secret"));
        let oauth = match is_program {
            true => OAuth::client_credentials(fake.issuer(), "report", "secret"),
            false => OAuth::new(willing_user(&fake).0),
        };
        let server = McpServer::http(fake.url()).name("tickets").oauth(oauth.scopes(["read"])).trusted();
        let tools = server.connect().await.unwrap();
        let expire = async || {
            // The next token has expired as soon as it is there.
            fake.set_token_lifetime(Duration::ZERO);
            fake.expire_access_tokens();
            assert_eq!(call(&tools, "read").await.unwrap(), "read: read");
        };
        let requests = || (fake.requests("/token").len(), fake.requests("/mcp").len());
        expire().await;
        fake.set_token_lifetime(Duration::from_secs(3600));
        let (tokens, sent) = requests();
        for _ in 0..2 {
            assert_eq!(call(&tools, "read").await.unwrap(), "read: read");
        }
        assert_eq!(requests(), (tokens + 1, sent + 2));
        // If it cannot be renewed, the server decides about it.
        expire().await;
        fake.respond("/token", 503, "");
        assert_eq!(call(&tools, "read").await.unwrap(), "read: read");
        assert_eq!(requests(), (tokens + 3, sent + 5));
        // The next requests do not wait for it again.
        let found = fake.requests("/.well-known/oauth-authorization-server").len();
        assert_eq!(call(&tools, "read").await.unwrap(), "read: read");
        assert_eq!(requests(), (tokens + 3, sent + 6));
        assert_eq!(fake.requests("/.well-known/oauth-authorization-server").len(), found);
    }
}

/// Each request of a web application has a server of its own, and knows only the store.
#[tokio::test]
async fn a_web_application_asks_for_further_scopes() {
    let fake = fake().await;
    let (server, store) = logged_in(&fake).await;
    let tools = server.connect().await.unwrap();
    assert_eq!(call_error(&tools, "write").await.kind(), McpErrorKind::LoginRequired);
    // A renewal keeps what is lacking.
    fake.expire_access_tokens();
    assert_eq!(call(&tools, "read").await.unwrap(), "read: read");
    let route = || route_server(&fake, store.clone());
    let url = route().start_login().await.unwrap().expect("a scope is lacking");
    assert_eq!(parameter(&url, "scope").as_deref(), Some("read write"));
    route().finish_login(&fake.approve(&url).await.unwrap()).await.unwrap();
    assert_eq!(route().start_login().await.unwrap(), None);
    assert_eq!(call(&tools, "write").await.unwrap(), "write: read write");
}

#[tokio::test]
async fn a_scope_that_is_not_granted_is_requested_once() {
    let fake = fake().await;
    fake.refuse_scope("write");
    let (login, logins) = willing_user(&fake);
    let server = McpServer::http(fake.url()).name("tickets").oauth(OAuth::new(login)).trusted();
    let tools = server.connect().await.unwrap();
    let expected = "cannot be authorized: the scopes `write` are needed, which were requested before; give the user the right to them";
    for _ in 0..2 {
        assert_eq!(problem(&call_error(&tools, "write").await, McpErrorKind::Unauthorized), expected);
        assert_eq!(logins.load(Ordering::SeqCst), 2);
    }
    assert_eq!(call(&tools, "read").await.unwrap(), "read: read");
}

#[tokio::test]
async fn an_expired_token_is_renewed_once_for_all_calls() {
    let fake = fake().await;
    let tools = logged_in(&fake).await.0.connect().await.unwrap();
    for round in 2..5 {
        fake.expire_access_tokens();
        let calls = (0..10).map(|_| call(&tools, "read"));
        for called in futures_util::future::join_all(calls).await {
            assert_eq!(called.unwrap(), "read: read");
        }
        assert_eq!(fake.requests("/token").len(), round);
    }
    assert_eq!((fake.reused_refresh_tokens(), fake.requests("/authorize").len()), (0, 1));
}

/// The server has exchanged the refresh token when the caller loses interest.
#[tokio::test]
async fn a_dropped_call_does_not_lose_the_login() {
    let fake = fake().await;
    let (server, store) = logged_in(&fake).await;
    let tools = server.connect().await.unwrap();
    fake.expire_access_tokens();
    let paused = fake.pause("/token");
    tokio::select! {
        _ = call(&tools, "read") => panic!("the response was held back"),
        () = paused.arrived() => {}
    }
    drop(tools);
    paused.resume();
    let tools = route_server(&fake, store).connect().await.unwrap();
    assert_eq!(call(&tools, "read").await.unwrap(), "read: read");
    assert_eq!((fake.reused_refresh_tokens(), fake.requests("/token").len()), (0, 2));
}

#[tokio::test]
async fn a_login_that_has_ended_is_started_again() {
    let fake = fake().await;
    let (login, logins) = willing_user(&fake);
    let tools = McpServer::http(fake.url()).oauth(OAuth::new(login)).trusted().connect().await.unwrap();
    fake.end_logins();
    assert_eq!(call(&tools, "read").await.unwrap(), "read: read");
    assert_eq!(logins.load(Ordering::SeqCst), 2);

    let (server, _) = logged_in(&fake).await;
    let tools = server.clone().connect().await.unwrap();
    fake.end_logins();
    let problem = problem(&call_error(&tools, "read").await, McpErrorKind::LoginRequired);
    assert!(problem.starts_with("requires a login: the endpoint"), "{problem}");
    finish(&fake, &server).await.unwrap();
    assert_eq!(call(&tools, "read").await.unwrap(), "read: read");
}

/// The authorization server refuses a renewal while the user logs in through another process.
#[tokio::test]
async fn a_login_during_a_renewal_is_used() {
    let fake = fake().await;
    let store = InMemoryCredentials::default();
    let (server, other) = (route_server(&fake, store.clone()), route_server(&fake, store));
    let [first, second] = [server.start_login().await, server.start_login().await];
    server.finish_login(&fake.approve(&first.unwrap().unwrap()).await.unwrap()).await.unwrap();
    let tools = server.connect().await.unwrap();
    fake.end_logins();
    let paused = fake.pause("/token");
    let redirect = fake.approve(&second.unwrap().unwrap()).await.unwrap();
    let logging_in = async {
        paused.arrived().await;
        other.finish_login(&redirect).await.unwrap();
        paused.resume();
    };
    let (called, ()) = tokio::join!(call(&tools, "read"), logging_in);
    assert_eq!(called.unwrap(), "read: read");
}

#[tokio::test]
async fn a_user_that_refuses_is_asked_once_for_all_waiting_calls() {
    let fake = fake().await;
    let (user, asked) = (Arc::clone(&fake), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&asked);
    let login = Login::paste("http://127.0.0.1/callback", move |login| {
        let (user, number) = (Arc::clone(&user), count.fetch_add(1, Ordering::SeqCst));
        async move {
            tokio::time::sleep(Duration::from_millis(300 * number as u64)).await;
            if number == 0 { user.approve(&login.url).await } else { Err(io::Error::other("refused")) }
        }
    });
    let server = McpServer::http(fake.url()).name("tickets").oauth(OAuth::new(login)).trusted();
    let tools = server.clone().connect().await.unwrap();
    fake.end_logins();
    // All share the refusal, so that no task of them asks again.
    let errors = futures_util::future::join_all((0..5).map(|_| call_error(&tools, "read"))).await;
    assert!(errors.iter().all(|error| error.kind() == McpErrorKind::LoginRefused), "{errors:?}");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    // Nor for the calls of a model that tries again, but by the program.
    let error = problem(&call_error(&tools, "read").await, McpErrorKind::LoginRefused);
    assert_eq!(error, "cannot be authorized: a login has just failed; try again later, or connect again");
    assert_eq!(asked.load(Ordering::SeqCst), 2);
    server.connect().await.unwrap_err();
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

/// A client that registers itself does so once, and again when the authorization server has forgotten it.
#[tokio::test]
async fn a_client_registers_itself_once() {
    let fake = fake().await;
    let (server, _) = logged_in(&fake).await;
    fake.end_logins();
    let url = server.start_login().await.unwrap().unwrap();
    assert_eq!(fake.requests("/register").len(), 1);
    fake.respond("/token", 401, r#"{"error":"invalid_client"}"#);
    server.finish_login(&fake.approve(&url).await.unwrap()).await.unwrap_err();
    server.start_login().await.unwrap().unwrap();
    assert_eq!(fake.requests("/register").len(), 2);

    let fake = super::support::fake().await;
    let (login, logins) = willing_user(&fake);
    let tools = McpServer::http(fake.url()).oauth(OAuth::new(login)).trusted().connect().await.unwrap();
    fake.end_logins();
    assert_eq!(call(&tools, "read").await.unwrap(), "read: read");
    assert_eq!((logins.load(Ordering::SeqCst), fake.requests("/register").len()), (2, 1));
}

/// The authorization server may have forgotten it, and would show that on a page of its own.
#[tokio::test]
async fn a_client_that_registered_itself_ends_with_a_login_that_fails() {
    let fake = fake().await;
    let server = route_server(&fake, InMemoryCredentials::default());
    let url = server.start_login().await.unwrap().unwrap();
    let redirect = with_parameter(&fake.approve(&url).await.unwrap(), "code", None);
    server.finish_login(&format!("{redirect}&error=unauthorized_client")).await.unwrap_err();
    server.start_login().await.unwrap().unwrap();
    server.start_login().await.unwrap().unwrap();
    assert_eq!(fake.requests("/register").len(), 2);

    let fake = super::support::fake().await;
    let login = Login::paste("http://127.0.0.1/callback", async |_| {
        // Nobody answers.
        tokio::time::pause();
        std::future::pending().await
    });
    let server = McpServer::http(fake.url()).name("tickets").oauth(OAuth::new(login));
    for registrations in 1..3 {
        let problem = problem(&server.clone().connect().await.unwrap_err(), McpErrorKind::LoginRefused);
        tokio::time::resume();
        assert_eq!(problem, "cannot be authorized: nobody logged in within 300s");
        assert_eq!(fake.requests("/register").len(), registrations);
    }
}

/// Records the seconds for which clients that registered themselves are stored.
#[derive(Clone, Default)]
struct Registrations(InMemoryCredentials, Arc<Mutex<Vec<u64>>>);

impl CredentialStore for Registrations {
    fn load<'a>(&'a self, key: &'a CredentialKey) -> StoreFuture<'a, Option<Credential>> {
        self.0.load(key)
    }

    fn swap<'a>(
        &'a self,
        key: &'a CredentialKey,
        expected: Option<&'a str>,
        new: Option<&'a Credential>,
    ) -> StoreFuture<'a, bool> {
        if let Some(new) = new.filter(|_| key.to_string().contains(ROUTE)) {
            let new = serde_json::to_value(new).unwrap();
            let end = new["expires_at"]["secs_since_epoch"].as_u64().unwrap();
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            self.1.lock().unwrap().push(end - now);
        }
        self.0.swap(key, expected, new)
    }

    fn lock<'a>(&'a self, key: &'a CredentialKey) -> StoreFuture<'a, CredentialLock> {
        self.0.lock(key)
    }
}

/// A login that is never finished leaves no trace but that.
#[tokio::test]
async fn a_client_is_stored_for_longer_after_a_login_and_never_beyond_its_secret() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    for (secret_ends, expected) in [(0, [300, 3600, 300]), (now + 120, [120; 3])] {
        let (fake, store) = (fake().await, Registrations::default());
        let oauth = OAuth::new(Login::route(ROUTE)).user("ada").store(store.clone());
        let server = McpServer::http(fake.url()).oauth(oauth);
        fake.add_client("registered", Some("a-secret"));
        let client = json!({
            "client_id": "registered",
            "client_secret": "a-secret",
            "client_secret_expires_at": secret_ends,
        });
        fake.respond("/register", 201, client.to_string());
        finish(&fake, &server).await.unwrap();
        fake.end_logins();
        for _ in 0..2 {
            server.start_login().await.unwrap().unwrap();
        }
        let stored = store.1.lock().unwrap().clone();
        let is_near = |(found, expected): (&u64, &u64)| found.abs_diff(*expected) <= 30;
        assert!(stored.len() == 3 && stored.iter().zip(&expected).all(is_near), "{stored:?}");
    }
}

/// Otherwise nobody could log in again, because a renewal would fail each time.
#[tokio::test]
async fn a_login_ends_whose_client_was_forgotten() {
    let fake = fake().await;
    let (server, _) = logged_in(&fake).await;
    let tools = server.clone().connect().await.unwrap();
    fake.expire_access_tokens();
    fake.respond("/token", 401, r#"{"error":"invalid_client"}"#);
    assert_eq!(call_error(&tools, "read").await.kind(), McpErrorKind::LoginRequired);
    assert!(server.start_login().await.unwrap().is_some());

    // The secret of a configured one may be wrong for a moment.
    let fake = super::support::fake().await;
    fake.add_client("desk", Some("secret"));
    let oauth =
        OAuth::new(Login::route(ROUTE)).user("ada").confidential_client(fake.issuer(), "desk", "secret");
    let server = McpServer::http(fake.url()).oauth(oauth).trusted();
    finish(&fake, &server).await.unwrap();
    let tools = server.clone().connect().await.unwrap();
    fake.expire_access_tokens();
    fake.respond("/token", 401, r#"{"error":"invalid_client"}"#);
    assert_eq!(call_error(&tools, "read").await.kind(), McpErrorKind::Unauthorized);
    assert_eq!(server.start_login().await.unwrap_err().kind(), McpErrorKind::Unauthorized);
}

/// A server that requires a login only for calls: the challenge of a call is known to the process that starts the login.
#[tokio::test]
async fn a_login_starts_after_a_call_that_was_refused() {
    let fake = fake().await;
    fake.add_client("app", None);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let (resource, issuer) = (format!("{origin}/mcp"), fake.issuer());
    let metadata = json!({ "resource": resource, "authorization_servers": [issuer] });
    let metadata = move || std::future::ready(metadata.to_string());
    let challenge = format!("Bearer resource_metadata=\"{origin}/metadata\"");
    let mcp = move |headers: axum::http::HeaderMap, body: String| {
        let message: Value = serde_json::from_str(&body).unwrap_or_default();
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => {
                json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {} }, "serverInfo": { "name": "open", "version": "1" } })
            }
            "tools/list" => json!({ "tools": [{ "name": "read", "inputSchema": { "type": "object" } }] }),
            "tools/call" => json!({ "content": [] }),
            _ => Value::Null,
        };
        let is_refused = message["method"] == "tools/call" && !headers.contains_key("authorization");
        let status = if is_refused {
            401
        } else if result.is_null() {
            202
        } else {
            200
        };
        let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string();
        let response =
            axum::http::Response::builder().status(status).header("content-type", "application/json");
        let response = if is_refused { response.header("www-authenticate", &challenge) } else { response };
        std::future::ready(response.body(axum::body::Body::from(body)).unwrap())
    };
    let router = axum::Router::new()
        .route("/mcp", axum::routing::any(mcp))
        .route("/metadata", axum::routing::get(metadata));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });

    let store = InMemoryCredentials::default();
    // Each request of the web application has a server of its own.
    let server = |user: &str| {
        let oauth =
            OAuth::new(Login::route(ROUTE)).client(fake.issuer(), "app").user(user).store(store.clone());
        McpServer::http(&resource).name("tickets").oauth(oauth).trusted()
    };
    assert_eq!(server("ada").start_login().await.unwrap(), None);
    let tools = server("ada").connect().await.unwrap();
    assert_eq!(call_error(&tools, "read").await.kind(), McpErrorKind::LoginRequired);
    assert_eq!(server("bob").start_login().await.unwrap(), None);
    let url = server("ada").start_login().await.unwrap().expect("a call was refused");
    // The fake one protects another server, and issues no tokens for this one.
    fake.respond("/token", 200, json!({ "access_token": "a-token", "token_type": "bearer" }).to_string());
    let url = with_parameter(&url, "resource", Some(&fake.url()));
    server("ada").finish_login(&fake.approve(&url).await.unwrap()).await.unwrap();
    assert_eq!(server("ada").start_login().await.unwrap(), None);
    call(&tools, "read").await.unwrap();
}

#[tokio::test]
async fn metadata_is_found_at_the_paths_of_the_standards() {
    let fake = fake().await;
    let issuer = format!("{}/tenant", fake.issuer());
    let resource = json!({ "resource": fake.issuer(), "authorization_servers": [issuer] });
    fake.respond("/.well-known/oauth-protected-resource/mcp", 404, "");
    fake.respond("/.well-known/oauth-protected-resource", 200, resource.to_string());
    let metadata = json!({
        "issuer": issuer,
        "authorization_endpoint": format!("{}/authorize", fake.issuer()),
        "token_endpoint": format!("{}/token", fake.issuer()),
        "code_challenge_methods_supported": ["S256"],
        "scopes_supported": ["offline_access"],
    });
    let oauth = OAuth::new(Login::route(ROUTE)).user("ada").client(&issuer, "desk");
    let server = McpServer::http(fake.url()).oauth(oauth);
    let paths = [
        "/.well-known/oauth-authorization-server/tenant",
        "/.well-known/openid-configuration/tenant",
        "/tenant/.well-known/openid-configuration",
    ];
    for path in paths {
        fake.respond(path, 200, metadata.to_string());
        let url = server.start_login().await;
        fake.respond(path, 404, "");
        let url = url.unwrap().unwrap();
        assert_eq!(parameter(&url, "client_id").as_deref(), Some("desk"));
        // The metadata at the root are those of the whole host.
        assert_eq!(parameter(&url, "resource"), Some(fake.url()));
        assert_eq!(parameter(&url, "scope").as_deref(), Some("read offline_access"));
        assert_eq!(parameter(&url, "prompt").as_deref(), Some("consent"));
    }
}
