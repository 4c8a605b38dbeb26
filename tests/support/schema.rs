//! Whether requests are what the published API takes.
//!
//! The schemas lie beside the repository, or above it; where they are not, nothing is checked, and that is said.

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

    /// The API behind a path such as `/v1/responses`, if it is one of these.
    pub fn of_path(path: &str) -> Option<Self> {
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

/// What the API takes.
struct Published {
    schema: Validator,
    /// The schemas are open: a property that is misspelt would pass them.
    properties: Vec<String>,
}

static PUBLISHED: LazyLock<HashMap<Api, Published>> = LazyLock::new(|| {
    let Some(folder) = folder() else {
        println!("skipped: requests are not checked, as the published schemas are not here");
        return HashMap::new();
    };
    let known = read(&folder.join("request_properties.json"));
    let published = |api: Api| {
        let names = known[api.request()]["known"].as_array().expect("it is a list");
        let properties = names.iter().map(|name| name.as_str().expect("it is a name").to_owned()).collect();
        Published { schema: compiled(&folder, api, api.request()), properties }
    };
    Api::ALL.into_iter().map(|api| (api, published(api))).collect()
});

fn folder() -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().map(|folder| folder.join("shared/openai")).find(|folder| folder.is_dir())
}

fn read(file: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(file).expect("it is there")).expect("it is JSON")
}

fn compiled(folder: &Path, api: Api, name: &str) -> Validator {
    let file = read(&folder.join(api.file()));
    let schema = json!({ "$ref": format!("#/$defs/{name}"), "$defs": file["$defs"] });
    jsonschema::draft202012::new(&schema).expect("it is a schema")
}

/// Panics unless the body of a request is one that the API takes, if what it takes is known here.
#[track_caller]
pub fn check_request(api: Api, body: &[u8]) {
    if let Err(why) = judge(api, body) {
        panic!("the API would refuse the request: {why}\n{}", String::from_utf8_lossy(body));
    }
}

/// Why the API would refuse the body of a request.
pub fn judge(api: Api, body: &[u8]) -> Result<(), String> {
    let body: Value = serde_json::from_slice(body).map_err(|error| format!("it is no JSON: {error}"))?;
    let Some(published) = PUBLISHED.get(&api) else { return Ok(()) };
    let object = body.as_object().ok_or("it is no object")?;
    if let Some(unknown) = object.keys().find(|name| !published.properties.contains(name)) {
        return Err(format!("it knows no `{unknown}`"));
    }
    // The whole of a large union is named otherwise.
    let wrong = published.schema.iter_errors(&body).map(|error| format!("at `{}`", error.instance_path()));
    let wrong: Vec<_> = wrong.collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join(", ")) }
}

/// The schemas are here.
pub fn is_known() -> bool {
    !PUBLISHED.is_empty()
}
