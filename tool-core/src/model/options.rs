//! How a model is to answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// How a model is to answer: what a provider lets one set of it, the same for all of them. What is unset, the provider
/// decides; what a model does not know, its provider ignores or refuses.
///
/// ```
/// use tool_core::{ChatRequest, Message, ModelOptions};
///
/// let options = ModelOptions::default().with_temperature(0.2).with_max_output_tokens(500);
/// let request = ChatRequest::new([Message::user("Good morning!")]).with_options(options);
/// assert_eq!(request.options().temperature, Some(0.2));
/// assert_eq!(request.options().seed, None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ModelOptions {
    /// How freely the model chooses its words: 0 is hardly at all, 2 the most that is usual.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The model chooses among the likeliest words that have this much of the probability together, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// How many tokens the model may write, its reasoning included. A reply that would be longer is cut short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u32>,
    /// With the same seed and request, the model is to answer the same, as far as it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// The model stops before it writes any of these texts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// How much the model reasons before it answers, in the provider's word, such as `low`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
    /// How much a word is avoided the more often it stands there already, from -2 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
    /// How much a word is avoided that stands there already, from -2 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    /// To be told [how likely](crate::ChatResponse::logprobs) the tokens of the text were, and of each place so many of the
    /// likeliest tokens; 0 for the text's own alone. Of a run, [`Event::TurnFinished`](crate::Event::TurnFinished) has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_logprobs: Option<u8>,
    /// How fast or cheap the answer is to be, in the provider's word, such as `flex`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<String>,
    /// Who asks, as a name that says nothing of the person: providers tell abuse by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What the provider keeps with the request, to find it by.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Further fields of the request, in the provider's own words: they are sent as they are.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
    /// Another model than the one that the [`ChatModel`](crate::ChatModel) was made for, by the provider's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl ModelOptions {
    /// These options, and those of `defaults` where these are unset; of the [further fields](Self::extra) each by itself.
    #[must_use]
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

    /// The same options with a [`temperature`](Self::temperature).
    #[must_use]
    pub fn with_temperature(mut self, temperature: f64) -> Self {
        self.temperature = Some(temperature);
        self
    }

    /// The same options with a [`top_p`](Self::top_p).
    #[must_use]
    pub fn with_top_p(mut self, top_p: f64) -> Self {
        self.top_p = Some(top_p);
        self
    }

    /// The same options with so many tokens that the model [may write](Self::max_output_tokens).
    #[must_use]
    pub fn with_max_output_tokens(mut self, tokens: u32) -> Self {
        self.max_output_tokens = Some(tokens);
        self
    }

    /// The same options with a [`seed`](Self::seed).
    #[must_use]
    pub fn with_seed(mut self, seed: i64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// The same options with these texts to [`stop`](Self::stop) at, in the place of earlier ones.
    #[must_use]
    pub fn with_stop<T: Into<String>>(mut self, texts: impl IntoIterator<Item = T>) -> Self {
        self.stop = texts.into_iter().map(Into::into).collect();
        self
    }

    /// The same options with a [`reasoning_effort`](Self::reasoning_effort).
    #[must_use]
    pub fn with_reasoning_effort(mut self, effort: impl Into<String>) -> Self {
        self.reasoning_effort = Some(effort.into());
        self
    }

    /// The same options with a [`frequency_penalty`](Self::frequency_penalty).
    #[must_use]
    pub fn with_frequency_penalty(mut self, penalty: f64) -> Self {
        self.frequency_penalty = Some(penalty);
        self
    }

    /// The same options with a [`presence_penalty`](Self::presence_penalty).
    #[must_use]
    pub fn with_presence_penalty(mut self, penalty: f64) -> Self {
        self.presence_penalty = Some(penalty);
        self
    }

    /// The same options with the likelihood of each token and of so many others: [`top_logprobs`](Self::top_logprobs).
    #[must_use]
    pub fn with_top_logprobs(mut self, others: u8) -> Self {
        self.top_logprobs = Some(others);
        self
    }

    /// The same options with a [`service_tier`](Self::service_tier).
    #[must_use]
    pub fn with_service_tier(mut self, tier: impl Into<String>) -> Self {
        self.service_tier = Some(tier.into());
        self
    }

    /// The same options with a [`user`](Self::user).
    #[must_use]
    pub fn with_user(mut self, user: impl Into<String>) -> Self {
        self.user = Some(user.into());
        self
    }

    /// The same options with one more entry of [`metadata`](Self::metadata).
    #[must_use]
    pub fn with_metadata(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(name.into(), value.into());
        self
    }

    /// The same options with one [further field](Self::extra) of the request.
    ///
    /// ```
    /// use tool_core::ModelOptions;
    ///
    /// let options = ModelOptions::default().with_extra("top_k", 40);
    /// assert_eq!(options.extra["top_k"], 40);
    /// ```
    #[must_use]
    pub fn with_extra(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.extra.insert(name.into(), value.into());
        self
    }

    /// The same options with another [`model`](Self::model).
    #[must_use]
    pub fn with_model(mut self, name: impl Into<String>) -> Self {
        self.model = Some(name.into());
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_unset_comes_from_the_defaults() {
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
    fn states_hold_what_is_set() {
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
