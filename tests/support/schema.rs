//! Checks requests against the schemas of the published API.
//!
//! The schemas are beside the repository or above it. If they are missing, nothing is checked, and a message says so.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::{Value, json};

/// An API that requests are sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// `POST /chat/completions`.
    ChatCompletions,
    /// `POST /responses`.
    Responses,
}

impl Api {
    const ALL: [Self; 2] = [Self::ChatCompletions, Self::Responses];

    /// Returns the API of a path such as `/v1/responses`, if it is a known one.
    pub fn from_path(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or(path);
        Self::ALL.into_iter().find(|api| match api {
            Self::ChatCompletions => path.ends_with("/chat/completions"),
            Self::Responses => path.ends_with("/responses"),
        })
    }

    fn file(self) -> &'static str {
        match self {
            Self::ChatCompletions => "chat_completions.schema.json",
            Self::Responses => "responses.schema.json",
        }
    }

    fn request(self) -> &'static str {
        match self {
            Self::ChatCompletions => "CreateChatCompletionRequest",
            Self::Responses => "CreateResponse",
        }
    }
}

/// The published schema of an API's requests.
struct Published {
    schema: Validator,
    /// The known properties: the schemas are open, so a misspelt property would pass them.
    properties: Vec<String>,
}

static PUBLISHED: LazyLock<HashMap<Api, Published>> = LazyLock::new(|| {
    let Some(folder) = folder() else {
        println!("skipped: requests are not checked because the published schemas are missing");
        return HashMap::new();
    };
    let known = read(&folder.join("request_properties.json"));
    let published = |api: Api| {
        let names = known[api.request()]["known"].as_array().expect("the known properties are a list");
        let properties =
            names.iter().map(|name| name.as_str().expect("a property name is a string").to_owned()).collect();
        Published { schema: compiled(&folder, api, api.request()), properties }
    };
    Api::ALL.into_iter().map(|api| (api, published(api))).collect()
});

fn folder() -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().map(|folder| folder.join("shared/openai")).find(|folder| folder.is_dir())
}

fn read(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).expect("the file exists")).expect("the file is JSON")
}

fn compiled(folder: &Path, api: Api, name: &str) -> Validator {
    let file = read(&folder.join(api.file()));
    let schema = json!({ "$ref": format!("#/$defs/{name}"), "$defs": file["$defs"] });
    jsonschema::draft202012::new(&schema).expect("the schema is valid")
}

/// Panics if the published API would reject the body of a request.
#[track_caller]
pub fn check_request(api: Api, body: &[u8]) {
    if let Err(why) = validate_request(api, body) {
        panic!("the API would refuse the request: {why}\n{}", String::from_utf8_lossy(body));
    }
}

/// Validates the body of a request; the error is the reason why the API would reject it.
pub fn validate_request(api: Api, body: &[u8]) -> Result<(), String> {
    let body: Value =
        serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))?;
    let Some(published) = PUBLISHED.get(&api) else { return Ok(()) };
    let object = body.as_object().ok_or("the body is not an object")?;
    if let Some(unknown) = object.keys().find(|name| !published.properties.contains(name)) {
        return Err(format!("unknown property `{unknown}`"));
    }
    // The message for a large union would include all of it, so only the paths are reported.
    let wrong = published.schema.iter_errors(&body).map(|error| format!("at `{}`", error.instance_path()));
    let wrong: Vec<_> = wrong.collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join(", ")) }
}

/// Returns `true` if the published schemas are available.
pub fn is_available() -> bool {
    !PUBLISHED.is_empty()
}
