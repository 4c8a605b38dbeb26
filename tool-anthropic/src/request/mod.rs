//! Encodes requests.

mod model_name;
mod strict;
mod tools;
mod content;
mod assistant;
mod messages;
mod cache_points;

use std::collections::HashSet;

use reqwest::Url;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tool_core::ModelOptions;
use tool_core::model::{ChatRequest, Message, ToolChoice, ToolDefinition};
use tool_http::client::{Error, FieldWriter, RequestBody};

pub(crate) use self::assistant::{has_thinking, is_summary, thinking_bytes};
use self::cache_points::{Prefix, with_messages};
use self::content::ContentRules;
use self::messages::{MessageCache, reject_pending, short};
pub(crate) use self::model_name::{forgets_thinking, lacks_compaction};
use self::strict::{Budget, Cost, enforceable};
pub(crate) use self::tools::MAX_TOOLS;
use self::tools::Rules;
use crate::client::Client;
use crate::endpoint::{FIRST_VERSION, Routes};
use crate::options::{Cache, MessagesOptions, Thinking};
use crate::warning::Warning;

/// The fields that extra fields must not set, and what sets them.
const RESERVED_FIELDS: [(&str, &str); 5] = [
    ("messages", "the messages of the request"),
    ("system", "a system message"),
    ("model", "`ModelOptions::model`"),
    ("max_tokens", "`ModelOptions::max_output_tokens`"),
    ("stream", "`ChatModel::stream`"),
];

/// The extra fields that a request to count tokens accepts.
const COUNTED_FIELDS: [&str; 6] =
    ["cache_control", "output_config", "speed", "thinking", "tool_choice", "tools"];

/// The beta feature of summaries on demand: <https://platform.claude.com/docs/en/build-with-claude/compaction-on-demand>.
const COMPACTION_BETA: &str = "compact-2026-09-04";

/// The largest body that the API accepts: <https://platform.claude.com/docs/en/api/errors>.
const MAX_BODY_BYTES: usize = 32 << 20;

/// The longest reply that the API returns at once. The official SDKs require a stream for more.
pub(crate) const MAX_UNSTREAMED_TOKENS: u32 = 21_333;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A reply that arrives at once.
    Reply,
    /// A reply that is streamed.
    Stream,
    /// The number of its tokens.
    Count,
}

/// A request as it is sent.
#[derive(Debug)]
pub(crate) struct EncodedRequest {
    pub(crate) body: RequestBody,
    /// A digest of all that the model reads.
    pub(crate) prefix: String,
    /// A digest of what precedes the messages.
    pub(crate) seed: String,
    /// The beta feature that it needs, because it asks for a summary or contains one.
    pub(crate) beta: Option<&'static str>,
}

/// A request and the model that it is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelRequest<'a> {
    pub(crate) client: &'a Client,
    pub(crate) model: &'a str,
    pub(crate) options: &'a MessagesOptions,
    pub(crate) chat: &'a ChatRequest<'a>,
}

impl ModelRequest<'_> {
    /// Returns the limit of the tokens of a reply.
    pub(crate) fn max_tokens(self) -> u32 {
        self.chat.options().max_output_tokens.unwrap_or_else(|| {
            let budget = self.options.thinking.and_then(|thinking| thinking.budget_tokens()).unwrap_or(0);
            self.client.endpoint.default_max_tokens.saturating_add(budget)
        })
    }

    /// Returns where the request is sent.
    pub(crate) fn url(self, purpose: Purpose) -> Url {
        let Self { client, model, .. } = self;
        let segment = match (client.endpoint.routes, purpose) {
            (Routes::Messages, Purpose::Count) => return client.url("messages/count_tokens"),
            (Routes::Messages, _) => return client.url("messages"),
            (Routes::RawPredict, Purpose::Count) => "count-tokens:rawPredict".to_owned(),
            (Routes::RawPredict, Purpose::Reply) => format!("{model}:rawPredict"),
            (Routes::RawPredict, Purpose::Stream) => format!("{model}:streamRawPredict"),
        };
        let mut url = client.connection.base_url().clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            // A name is one segment of the path.
            segments.pop_if_empty().push(&segment);
        }
        // A server that drops `;` and what follows would drop the method.
        let path = url.path().replace(';', "%3B");
        url.set_path(&path);
        url
    }

    /// Encodes the request. Messages of earlier turns are copied from a cache.
    ///
    /// # Errors
    ///
    /// Fails if the API would reject an option, a tool, a message, or a combination of them.
    pub(crate) fn encode(self, purpose: Purpose) -> Result<EncodedRequest, Error> {
        let Self { client, model, options, chat: request } = self;
        let endpoint = &*client.endpoint;
        let extra = match purpose {
            Purpose::Count => {
                let counted =
                    request.options().extra.iter().filter(|(name, _)| COUNTED_FIELDS.contains(&&***name));
                &counted.map(|(name, value)| (name.clone(), value.clone())).collect()
            }
            _ => &request.options().extra,
        };
        let mut fields = FieldWriter::new(1024, extra);
        fields.reject_reserved(&RESERVED_FIELDS)?;
        if let Some(field) = endpoint.refused_fields.iter().find(|field| fields.has_extra(field)) {
            let name = &endpoint.name;
            return Err(Error::request(format!(
                "the endpoint `{name}` refuses the extra field `{field}`; leave it out"
            )));
        }
        let format = self.format()?;
        let searches = request.has_tool_search() && endpoint.supports_tool_search;
        let rules = Rules {
            supports_strict: endpoint.supports_strict,
            is_searched: searches,
            format: format.as_ref().map_or(Cost::NONE, Cost::of_schema),
        };
        let report = |tool: &str, limit| client.warn(&Warning::NotStrict { tool, limit });
        let tools = tools::encode(request.tools(), rules, report)?;
        self.reject_combinations()?;
        let extra_tools = extra.get("tools").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        // With these, the caller sets the cache points.
        let has_points = fields.has_extra("cache_control")
            || extra_tools.iter().any(|tool| tool.get("cache_control").is_some());
        let cache = if endpoint.supports_cache && !has_points { options.cache } else { Cache::off() };
        let mut prefix = Prefix { point: cache.prefix_point(), bytes: 0, digest: Sha256::new() };
        // A model that does not think rejects earlier thinking.
        let is_thinking = options.thinking.map(Thinking::is_on);
        let provider = client.provider();
        prefix.digest.update(format!("{provider} {model} {is_thinking:?} {} ", json!(extra_tools)));
        let tools = prefix.tools(options, &tools)?;
        let leading = request.messages().iter().take_while(|message| matches!(message, Message::System(_)));
        let leading = leading.count();
        let system = prefix.system(&request.messages()[..leading])?;
        let seed: [u8; 32] = prefix.digest.finalize().into();
        let is_compaction = request.is_compaction() && purpose != Purpose::Count;
        if is_compaction && fields.has_extra("context_management") {
            return Err(Error::request(
                "a conversation with the extra field `context_management` is not summarized on demand; leave out one of them",
            ));
        }
        // The options of a request can name another model than the one that says what it supports.
        let reads_summaries = endpoint.supports_compaction && !lacks_compaction(model);
        if is_compaction && !reads_summaries {
            return Err(Error::request(format!("the model `{model}` does not summarize conversations")));
        }
        let content_rules = ContentRules {
            supports_files: endpoint.supports_files,
            has_citations: options.has_citations,
            reads_summaries,
        };

        request.cached(|messages: &mut MessageCache| {
            let start = request.reasoning_start();
            messages.append_new(request.messages(), (leading, start), seed, &provider, content_rules)?;
            reject_pending(&messages.state.pending)?;
            if messages.json.is_empty() {
                return Err(Error::request("the request has no message with content; add a user message"));
            }
            let is_raw = endpoint.routes == Routes::RawPredict;
            fields.write("anthropic_version", is_raw.then_some(&*endpoint.version))?;
            fields.write("model", Some(model).filter(|_| !is_raw || purpose == Purpose::Count))?;
            fields.write("stream", (purpose == Purpose::Stream).then_some(true))?;
            if purpose != Purpose::Count {
                fields.write("max_tokens", Some(self.max_tokens()))?;
            }
            let has_budget = options.thinking.is_some_and(|thinking| thinking.budget_tokens().is_some());
            let thinking = options.thinking.filter(|_| !(has_budget && messages.state.lacks_thinking));
            if thinking != options.thinking && purpose != Purpose::Count {
                client.warn(&Warning::ThinkingOmitted);
            }
            fields.write("thinking", thinking.map(Thinking::to_json))?;
            // The API rejects a format beside a summary. It counts above nevertheless, so that the tools are the same.
            let format = format.filter(|_| !is_compaction);
            fields.write("output_config", output_config(request.options(), format))?;
            if purpose != Purpose::Count {
                self.write_options(&mut fields)?;
            }
            let compaction = || match request.summary_prompt() {
                Some(prompt) => json!({ "type": "summarize", "instructions": prompt }),
                None => json!({ "type": "summarize" }),
            };
            fields.write("compaction", is_compaction.then(compaction))?;
            fields.write_json("tools", tools.as_deref())?;
            fields.write_json("system", system.as_deref())?;
            let has_tools = tools.is_some() || fields.has_extra("tools");
            let choice = tools::choice(request.tool_choice(), request.parallel_tool_calls());
            let choice = choice.filter(|_| has_tools && !fields.has_extra("tool_choice"));
            let container = messages.state.container.as_ref();
            let container =
                container.filter(|_| purpose != Purpose::Count && !fields.has_extra("container"));

            let point = cache.message_point().filter(|_| has_tools || messages.state.has_reply);
            let mut body = with_messages(fields.finish("messages")?, messages, point, prefix.bytes);
            let json = body.json();
            json.extend_from_slice(b"]}]");
            if let Some(choice) = choice {
                json.extend_from_slice(format!(r#","tool_choice":{choice}"#).as_bytes());
            }
            if let Some(container) = container {
                json.extend_from_slice(format!(r#","container":{}"#, json!(container)).as_bytes());
            }
            json.push(b'}');
            let body = body.finish();
            if body.len() > MAX_BODY_BYTES {
                return Err(Error::too_long(format!(
                    "the request has {} bytes, more than the {MAX_BODY_BYTES} that the API accepts; upload files and send their ids",
                    body.len()
                )));
            }
            let beta = (is_compaction || messages.state.has_summary).then_some(COMPACTION_BETA);
            Ok(EncodedRequest { body, prefix: messages.prefix(), seed: short(&seed), beta })
        })
    }

    /// Returns the schema of the reply.
    fn format(self) -> Result<Option<Value>, Error> {
        let is_supported = self.client.endpoint.supports_output_format;
        let Some(format) = self.chat.response_format().filter(|_| is_supported) else { return Ok(None) };
        if self.options.has_citations() {
            return Err(Error::request(
                "an answer with a schema cannot have citations; leave out `citations`, or use `by_tool`",
            ));
        }
        let schema = enforceable(format.schema());
        if !format.is_strict() || Budget::default().take(Cost::of_schema(&schema)).is_err() {
            return Err(Error::request(format!(
                "the API cannot enforce the schema of the answer `{}`; take the answer `by_tool`, or use a simpler type",
                format.name()
            )));
        }
        Ok(Some(schema))
    }

    /// Writes the options that are set.
    fn write_options(self, fields: &mut FieldWriter<'_>) -> Result<(), Error> {
        let options = self.chat.options();
        if options.stop.iter().any(|text| text.trim().is_empty()) {
            return Err(Error::request(
                "a text of the option `stop` is blank, which the API rejects; leave it out",
            ));
        }
        fields.write("metadata", options.user.as_ref().map(|user| json!({ "user_id": user })))?;
        // The API rejects it beside a summary.
        let stop = Some(&options.stop).filter(|stop| !stop.is_empty() && !self.chat.is_compaction());
        fields.write("stop_sequences", stop)?;
        fields.write("service_tier", options.service_tier.as_ref())?;
        if self.has_sampling() {
            fields.write_number("temperature", options.temperature)?;
            fields.write_number("top_p", options.top_p)?;
        }
        Ok(())
    }

    fn has_sampling(self) -> bool {
        self.client.endpoint.version == FIRST_VERSION && !model_name::refuses_sampling(self.model)
    }

    /// Rejects what the API does not accept together.
    fn reject_combinations(self) -> Result<(), Error> {
        let Self { client, model, options, chat: request } = self;
        let thinking = options.thinking.filter(|thinking| thinking.is_on());
        let violation = thinking.and_then(|thinking| thinking.find_violation(self.max_tokens()));
        if let Some(violation) = violation {
            return Err(Error::request(violation));
        }
        let samples = request.options().temperature.or(request.options().top_p).is_some();
        if samples && thinking.is_some() {
            return Err(Error::request(
                "`temperature` and `top_p` cannot be combined with thinking; unset them, or use `Thinking::off`",
            ));
        }
        let names = request.tools().iter().map(ToolDefinition::name);
        let mut names: HashSet<&str> = names.collect();
        if let Some(tool) = options.hosted_tools.iter().find(|tool| !names.insert(tool.name())) {
            let name = tool.name();
            return Err(Error::request(format!(
                "two tools are named `{name}`; rename yours, or leave out one"
            )));
        }
        let requires_call = matches!(request.tool_choice(), ToolChoice::Required | ToolChoice::Tool(_));
        if !requires_call || request.tools().is_empty() {
            return Ok(());
        }
        let reason = if thinking.is_some_and(|thinking| thinking.budget_tokens().is_some()) {
            "a model with `Thinking::budget`".to_owned()
        } else if !client.endpoint.supports_required_calls || model_name::refuses_required_calls(model) {
            format!("the model `{model}`")
        } else {
            return Ok(());
        };
        Err(Error::request(format!(
            "{reason} cannot be required to call a tool; use `ToolChoice::Auto`, and ask for the call in the instructions"
        )))
    }

    /// Rejects a reply at the end of a request, which newer models do not continue unless they paused it.
    pub(crate) fn reject_prefill(self) -> Result<(), Error> {
        let model = self.model;
        match self.chat.messages().last() {
            Some(Message::Assistant(reply))
                if model_name::refuses_prefill(model) && !reply.text.trim().is_empty() =>
            {
                Err(Error::request(format!(
                    "the model `{model}` does not continue a reply; add a user message behind the last reply"
                )))
            }
            _ => Ok(()),
        }
    }

    /// Reports what of the request is left out.
    pub(crate) fn warn(self) {
        if self.client.on_warning.is_none() {
            return;
        }
        let (options, samples) = (self.chat.options(), self.has_sampling());
        let omitted = [
            ("temperature", options.temperature.is_some() && !samples),
            ("top_p", options.top_p.is_some() && !samples),
            ("seed", options.seed.is_some()),
            ("frequency_penalty", options.frequency_penalty.is_some()),
            ("presence_penalty", options.presence_penalty.is_some()),
            ("top_logprobs", options.top_logprobs.is_some()),
            ("metadata", !options.metadata.is_empty()),
        ];
        for (option, _) in omitted.into_iter().filter(|(_, is_set)| *is_set) {
            self.client.warn(&Warning::OptionOmitted { option });
        }
    }
}

fn output_config(options: &ModelOptions, format: Option<Value>) -> Option<Value> {
    let mut config = serde_json::Map::new();
    if let Some(effort) = &options.reasoning_effort {
        config.insert("effort".into(), effort.as_str().into());
    }
    if let Some(schema) = format {
        config.insert("format".into(), json!({ "type": "json_schema", "schema": schema }));
    }
    (!config.is_empty()).then_some(Value::Object(config))
}
