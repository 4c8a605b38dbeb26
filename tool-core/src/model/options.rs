//! Options of a model.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::setters::setters;

/// Options of a model, the same for all providers. The provider decides about options that are not set, and ignores or
/// rejects options that the model does not support.
///
/// ```
/// use tool_core::model::ChatRequest;
/// use tool_core::{Message, ModelOptions};
///
/// let options = ModelOptions::default().with_temperature(0.2).with_max_output_tokens(500);
/// let request = ChatRequest::new([Message::user("Good morning!")]).with_options(options);
/// assert_eq!(request.options().temperature, Some(0.2));
/// assert_eq!(request.options().seed, None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
#[must_use]
pub struct ModelOptions {
    /// The randomness of the output: 0 is nearly deterministic, 2 the usual maximum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The probability mass of the most likely tokens that the model samples from, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// The maximum number of output tokens, including reasoning. A longer response is truncated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// The random seed. The same seed and request give the same response, as far as the model supports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Texts at which the model stops. They are not part of the response.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// The amount of reasoning before the answer, as the provider names it, such as `low`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
    /// The penalty on tokens in proportion to how often they already occur, from -2 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
    /// The penalty on tokens that already occur, from -2 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    /// Requests the [log probabilities](crate::model::ChatResponse::logprobs) of the text's tokens, with this number of most
    /// likely alternatives each; 0 for none. In a run, [`Event::TurnFinished`](crate::Event::TurnFinished) has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_logprobs: Option<u8>,
    /// The trade-off between speed and cost, as the provider names it, such as `flex`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<String>,
    /// An anonymous identifier of the end user, by which providers detect abuse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Metadata that the provider stores with the request, for example to search for it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Additional fields of the provider's request, which are sent unchanged.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
    /// The name of the model, if not the one that the [`ChatModel`](crate::ChatModel) was created for. What that one supports, agents take for
    /// supported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

setters! {
    ModelOptions {
        /// Sets the [`temperature`](Self::temperature).
        with_temperature(temperature: f64) temperature = Some(temperature);
        /// Sets [`top_p`](Self::top_p).
        with_top_p(top_p: f64) top_p = Some(top_p);
        /// Sets the [maximum number of output tokens](Self::max_output_tokens).
        with_max_output_tokens(tokens: u32) max_output_tokens = Some(tokens);
        /// Sets the [`seed`](Self::seed).
        with_seed(seed: i64) seed = Some(seed);
        /// Sets the [`reasoning_effort`](Self::reasoning_effort).
        with_reasoning_effort(effort: impl Into<String>) reasoning_effort = Some(effort.into());
        /// Sets the [`frequency_penalty`](Self::frequency_penalty).
        with_frequency_penalty(penalty: f64) frequency_penalty = Some(penalty);
        /// Sets the [`presence_penalty`](Self::presence_penalty).
        with_presence_penalty(penalty: f64) presence_penalty = Some(penalty);
        /// Requests log probabilities of each token and of this number of alternatives: [`top_logprobs`](Self::top_logprobs).
        with_top_logprobs(alternatives: u8) top_logprobs = Some(alternatives);
        /// Sets the [`service_tier`](Self::service_tier).
        with_service_tier(tier: impl Into<String>) service_tier = Some(tier.into());
        /// Sets the [`user`](Self::user).
        with_user(user: impl Into<String>) user = Some(user.into());
        /// Sets another [`model`](Self::model).
        with_model(name: impl Into<String>) model = Some(name.into());
    }
}

impl ModelOptions {
    /// Returns these options, with the options that are not set taken from `defaults`. The [additional
    /// fields](Self::extra) are merged one by one.
    pub fn or(self, defaults: &Self) -> Self {
        Self {
            temperature: self.temperature.or(defaults.temperature),
            top_p: self.top_p.or(defaults.top_p),
            max_output_tokens: self.max_output_tokens.or(defaults.max_output_tokens),
            seed: self.seed.or(defaults.seed),
            stop: if self.stop.is_empty() { defaults.stop.clone() } else { self.stop },
            reasoning_effort: self.reasoning_effort.or_else(|| defaults.reasoning_effort.clone()),
            frequency_penalty: self.frequency_penalty.or(defaults.frequency_penalty),
            presence_penalty: self.presence_penalty.or(defaults.presence_penalty),
            top_logprobs: self.top_logprobs.or(defaults.top_logprobs),
            service_tier: self.service_tier.or_else(|| defaults.service_tier.clone()),
            user: self.user.or_else(|| defaults.user.clone()),
            metadata: if self.metadata.is_empty() { defaults.metadata.clone() } else { self.metadata },
            extra: defaults.extra.clone().into_iter().chain(self.extra).collect(),
            model: self.model.or_else(|| defaults.model.clone()),
        }
    }

    /// Sets the texts to [`stop`](Self::stop) at, replacing earlier ones.
    pub fn with_stop<T: Into<String>>(mut self, texts: impl IntoIterator<Item = T>) -> Self {
        self.stop = texts.into_iter().map(Into::into).collect();
        self
    }

    /// Adds an entry of [`metadata`](Self::metadata).
    pub fn with_metadata(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(name.into(), value.into());
        self
    }

    /// Adds an [additional field](Self::extra) of the request.
    ///
    /// ```
    /// use tool_core::ModelOptions;
    ///
    /// let options = ModelOptions::default().with_extra("top_k", 40);
    /// assert_eq!(options.extra["top_k"], 40);
    /// ```
    pub fn with_extra(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.extra.insert(name.into(), value.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn or_fills_in_the_defaults() {
        let defaults =
            ModelOptions::default().with_temperature(0.5).with_seed(1).with_stop(["a"]).with_model("m");
        let options = ModelOptions::default().with_seed(2).with_top_p(0.1).or(&defaults);
        assert_eq!(options, defaults.clone().with_seed(2).with_top_p(0.1));
        assert_eq!(ModelOptions::default().or(&defaults), defaults);
        assert_eq!(defaults.clone().or(&ModelOptions::default()), defaults);
        let extra = ModelOptions::default().with_extra("a", 1).with_extra("b", 2);
        let both = extra.clone().with_extra("b", 3).with_extra("c", 4);
        assert_eq!(ModelOptions::default().with_extra("b", 3).with_extra("c", 4).or(&extra), both);
    }

    #[test]
    fn serializes_only_options_that_are_set() {
        let all = ModelOptions::default()
            .with_temperature(0.5)
            .with_top_p(0.9)
            .with_max_output_tokens(100)
            .with_seed(-7)
            .with_stop(["END", ""])
            .with_reasoning_effort("low")
            .with_frequency_penalty(0.5)
            .with_presence_penalty(-0.5)
            .with_top_logprobs(2)
            .with_service_tier("flex")
            .with_user("u1")
            .with_metadata("a", "b")
            .with_extra("top_k", 40)
            .with_model("large");
        let table = [
            (ModelOptions::default(), json!({})),
            (ModelOptions::default().with_stop(["END"]), json!({ "stop": ["END"] })),
            (
                all,
                json!({
                    "temperature": 0.5,
                    "top_p": 0.9,
                    "max_output_tokens": 100,
                    "seed": -7,
                    "stop": ["END", ""],
                    "reasoning_effort": "low",
                    "frequency_penalty": 0.5,
                    "presence_penalty": -0.5,
                    "top_logprobs": 2,
                    "service_tier": "flex",
                    "user": "u1",
                    "metadata": { "a": "b" },
                    "extra": { "top_k": 40 },
                    "model": "large",
                }),
            ),
        ];
        for (options, state) in table {
            assert_eq!(serde_json::to_value(&options).unwrap(), state);
            assert_eq!(serde_json::from_value::<ModelOptions>(state).unwrap(), options);
        }
    }
}
