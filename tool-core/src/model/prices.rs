//! What models cost.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;

use super::cost::to_micros;
use crate::model::{Cost, Currency, ModelInfo, Usage};

/// The prices of models, which turn the tokens of a request into its [`Cost`]. Clones share the table.
///
/// This crate has no prices of its own, because they change. Write your models' prices into a file, with the day on which you
/// looked them up, or compute them by a [function](Self::from_fn).
///
/// ```
/// use tool_core::model::{Prices, Usage};
///
/// let prices = Prices::from_json(
///     r#"{
///         "currency": "USD",
///         "models": {
///             "small": { "input": 0.4, "cached_input": 0.1, "output": 1.6, "max_output_tokens": 32768 },
///             "claude-*": { "input": 3, "cached_input": 0.3, "cache_write": 3.75, "long_cache_write": 6, "output": 15 }
///         }
///     }"#,
/// )?;
/// let cost = prices.cost("small", Usage::new(10_000, 500))?;
/// assert_eq!(cost.to_string(), "0.0048 USD");
/// # Ok::<_, tool_core::signatures::PricesError>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Prices {
    table: Arc<Table>,
    /// In place of the models of the table.
    function: Option<Arc<PriceFn>>,
}

/// Returns the prices of these tokens of the model with this name.
type PriceFn = dyn Fn(&str, Usage) -> Option<ModelPrices> + Send + Sync;

/// What a model whose price is not known counts as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum OnUnknownPrice {
    /// A request to it is an error, before it is sent.
    #[default]
    Error,
    /// It costs as much as the worst of the known prices. With a [function](Prices::from_fn), no price is known.
    WorstPrice,
}

/// A price in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "f64")]
struct Price(u64);

impl Price {
    /// Converts units to millionths. What is no price must not be free.
    fn new(units: f64) -> Self {
        Self(if units >= 0.0 { to_micros(units) } else { u64::MAX })
    }
}

impl TryFrom<f64> for Price {
    type Error = &'static str;

    fn try_from(units: f64) -> Result<Self, Self::Error> {
        let is_price = units.is_finite() && units >= 0.0;
        is_price.then(|| Self::new(units)).ok_or("a price is a number and not negative")
    }
}

/// The prices of one model in units of the currency per million tokens, and its limits. What is not set costs as much as input.
/// A number that is no price, such as a negative one, counts as the highest price.
///
/// ```
/// use tool_core::model::ModelPrices;
///
/// let prices = ModelPrices::new(0.4, 1.6).with_cached_input(0.1).with_max_output_tokens(32_768);
/// # let _ = prices;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[must_use]
pub struct ModelPrices {
    input: Price,
    cached_input: Option<Price>,
    cache_write: Option<Price>,
    long_cache_write: Option<Price>,
    output: Price,
    /// The price of a thousand searches.
    web_search: Option<Price>,
    max_web_searches: Option<u32>,
    max_output_tokens: Option<u64>,
    context_window: Option<u64>,
}

impl ModelPrices {
    /// Sets the prices of a million tokens of input and of output, which includes reasoning.
    pub fn new(input: f64, output: f64) -> Self {
        Self { input: Price::new(input), output: Price::new(output), ..Self::default() }
    }

    /// Sets the price of a million input tokens that are read from the provider's cache.
    pub fn with_cached_input(mut self, price: f64) -> Self {
        self.cached_input = Some(Price::new(price));
        self
    }

    /// Sets the prices of a million input tokens that are written to the provider's cache for minutes, and for an hour.
    pub fn with_cache_writes(mut self, short: f64, long: f64) -> Self {
        (self.cache_write, self.long_cache_write) = (Some(Price::new(short)), Some(Price::new(long)));
        self
    }

    /// Sets the price of a thousand web searches that the provider makes, and how many one request can make. Their results are
    /// input, so a request is then assumed to read as much as fits into the [context window](Self::with_context_window).
    pub fn with_web_searches(mut self, price: f64, max_per_request: u32) -> Self {
        (self.web_search, self.max_web_searches) = (Some(Price::new(price)), Some(max_per_request));
        self
    }

    /// Sets the largest number of output tokens, for providers that do not [report](crate::provider::ModelInfo) it.
    pub fn with_max_output_tokens(mut self, tokens: u64) -> Self {
        self.max_output_tokens = Some(tokens);
        self
    }

    /// Sets the largest number of input tokens, for providers that do not [report](crate::provider::ModelInfo) it.
    pub fn with_context_window(mut self, tokens: u64) -> Self {
        self.context_window = Some(tokens);
        self
    }

    /// Returns the price of these tokens in millionths of a unit of the currency, rounded up.
    fn micros(&self, usage: Usage) -> u64 {
        let written = usage.cache_write_tokens.unwrap_or(0);
        let long = usage.long_cache_write_tokens.unwrap_or(0).min(written);
        let read = usage.cached_tokens.unwrap_or(0);
        let plain = usage.input_tokens.saturating_sub(read).saturating_sub(written);
        let cache_write = self.cache_write.unwrap_or(self.input);
        let parts = [
            (plain, self.input),
            (read, self.cached_input.unwrap_or(self.input)),
            (written - long, cache_write),
            (long, self.long_cache_write.unwrap_or(cache_write)),
            (usage.output_tokens, self.output),
            (usage.web_searches.unwrap_or(0).saturating_mul(1_000), self.web_search.unwrap_or_default()),
        ];
        let costs = parts.iter().map(|(count, price)| u128::from(*count) * u128::from(price.0));
        let total = costs.fold(0, u128::saturating_add);
        u64::try_from(total.div_ceil(1_000_000)).unwrap_or(u64::MAX)
    }

    /// Returns the highest price that these numbers of tokens can have: all input is written to the cache, or none is.
    fn worst_micros(&self, input_tokens: u64, output_tokens: u64) -> u64 {
        let mut plain = Usage::new(input_tokens, output_tokens);
        plain.web_searches = self.max_web_searches.map(u64::from);
        let written = Usage { cache_write_tokens: Some(input_tokens), ..plain };
        let long = Usage { long_cache_write_tokens: Some(input_tokens), ..written };
        let read = Usage { cached_tokens: Some(input_tokens), ..plain };
        [plain, written, long, read].map(|usage| self.micros(usage)).into_iter().max().unwrap_or(0)
    }
}

/// The file of a table.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    currency: Currency,
    /// For the reader of the file.
    #[serde(default, rename = "as_of")]
    _as_of: Option<String>,
    #[serde(default)]
    unknown_models: OnUnknownPrice,
    models: BTreeMap<String, ModelPrices>,
}

/// Nothing implements it.
#[cfg(not(feature = "toml"))]
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`Prices::from_toml` needs the feature `toml` of `tool-core`",
    label = "the feature `toml` is disabled",
    note = "write `features = [\"toml\"]` at `tool-core` in `Cargo.toml`"
)]
pub trait IfTomlIsEnabled {}

impl Prices {
    /// Reads a table from JSON: `currency`, `models`, and if you like `unknown_models` (`"error"` or `"worst_price"`) and `as_of`,
    /// the day of the prices. Each model has `input` and `output`, and can have `cached_input`, `cache_write`,
    /// `long_cache_write` (per million tokens), `web_search` (per thousand), `max_web_searches` (per request),
    /// `max_output_tokens` and `context_window`. A name that ends in `*` matches all names with this prefix.
    ///
    /// # Errors
    ///
    /// Fails if the text is no such table.
    pub fn from_json(json: &str) -> Result<Self, PricesError> {
        Self::from_table(serde_json::from_str(json))
    }

    /// Reads a table from TOML, with the same names as in [JSON](Self::from_json).
    ///
    /// ```
    /// use tool_core::model::Prices;
    ///
    /// let prices = Prices::from_toml(
    ///     r#"
    ///     currency = "USD"
    ///     as_of = "2026-11-24"
    ///
    ///     [models.small]
    ///     input = 0.4
    ///     output = 1.6
    ///     "#,
    /// )?;
    /// # Ok::<_, tool_core::signatures::PricesError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the text is no such table.
    #[cfg(feature = "toml")]
    pub fn from_toml(text: &str) -> Result<Self, PricesError> {
        Self::from_table(toml::from_str(text))
    }

    /// Refuses to compile, and names the missing feature.
    ///
    /// # Errors
    ///
    /// It cannot be called.
    #[cfg(not(feature = "toml"))]
    #[doc(hidden)]
    pub fn from_toml(_: impl IfTomlIsEnabled) -> Result<Self, PricesError> {
        Err(PricesError::Table("the feature `toml` is disabled".into()))
    }

    fn from_table(table: Result<Table, impl fmt::Display>) -> Result<Self, PricesError> {
        let table = table.map_err(|error| PricesError::Table(error.to_string()))?;
        Ok(Self { table: Arc::new(table), function: None })
    }

    /// Creates prices from a function of the model's name and the tokens, for providers that charge more for each token of a long
    /// input. Before a request, the tokens are its worst case, so prices must not fall with more of them.
    ///
    /// ```
    /// use tool_core::model::{Currency, ModelPrices, Prices, Usage};
    ///
    /// let prices = Prices::from_fn(Currency::EUR, |model, usage| match model {
    ///     "own" if usage.input_tokens > 200_000 => Some(ModelPrices::new(0.2, 0.2)),
    ///     "own" => Some(ModelPrices::new(0.1, 0.1)),
    ///     _ => None,
    /// });
    /// assert_eq!(prices.cost("own", Usage::new(200_000, 0))?.micros(), 20_000);
    /// assert_eq!(prices.cost("own", Usage::new(300_000, 0))?.micros(), 60_000);
    /// # Ok::<_, tool_core::signatures::PricesError>(())
    /// ```
    pub fn from_fn(
        currency: Currency,
        prices: impl Fn(&str, Usage) -> Option<ModelPrices> + Send + Sync + 'static,
    ) -> Self {
        let (unknown_models, models) = (OnUnknownPrice::Error, BTreeMap::new());
        let table = Table { currency, _as_of: None, unknown_models, models };
        Self { table: Arc::new(table), function: Some(Arc::new(prices)) }
    }

    /// Sets what a model counts as whose price is not known.
    pub fn unknown_models(mut self, unknown: OnUnknownPrice) -> Self {
        Arc::make_mut(&mut self.table).unknown_models = unknown;
        self
    }

    /// Returns the currency of all prices.
    pub fn currency(&self) -> Currency {
        self.table.currency
    }

    /// Returns what these tokens of a model cost.
    ///
    /// # Errors
    ///
    /// Fails if the model is not known, unless it counts as the [worst](OnUnknownPrice::WorstPrice) of the known ones.
    pub fn cost(&self, model: &str, usage: Usage) -> Result<Cost, PricesError> {
        self.highest(model, usage, |prices| prices.micros(usage))
    }

    /// Returns the highest cost that these numbers of tokens of a model can have.
    pub(crate) fn worst_cost(&self, model: &str, input: u64, output: u64) -> Result<Cost, PricesError> {
        let mut usage = Usage::new(input, output);
        // The results of searches are input, and nobody knows how much.
        let with_searches = |prices: &ModelPrices| match prices.max_web_searches {
            Some(_) => input.max(prices.context_window.unwrap_or(u64::MAX)),
            None => input,
        };
        usage.input_tokens = self.find(model, usage).map_or(input, |prices| with_searches(&prices));
        self.highest(model, usage, |prices| prices.worst_micros(with_searches(prices), output))
    }

    /// Returns what is known about the model. What the prices say takes precedence over what its provider does.
    pub(crate) fn model_info(&self, model: &str, mut info: ModelInfo) -> ModelInfo {
        let prices = self.find(model, Usage::default()).unwrap_or_default();
        info.max_output_tokens = prices.max_output_tokens.or(info.max_output_tokens);
        info.context_window = prices.context_window.or(info.context_window);
        info
    }

    fn highest(
        &self,
        model: &str,
        usage: Usage,
        micros: impl Fn(&ModelPrices) -> u64,
    ) -> Result<Cost, PricesError> {
        let known = match (self.find(model, usage), self.table.unknown_models) {
            (Some(prices), _) => Some(micros(&prices)),
            (None, OnUnknownPrice::WorstPrice) => self.table.models.values().map(micros).max(),
            (None, OnUnknownPrice::Error) => None,
        };
        let known = known.ok_or_else(|| PricesError::UnknownModel(model.to_owned()))?;
        Ok(Cost::new(known, self.table.currency))
    }

    fn find(&self, model: &str, usage: Usage) -> Option<ModelPrices> {
        if let Some(prices) = &self.function {
            return prices(model, usage);
        }
        let models = &self.table.models;
        let starts = models.iter().filter_map(|(name, prices)| Some((name.strip_suffix('*')?, prices)));
        let longest =
            starts.filter(|(start, _)| model.starts_with(start)).max_by_key(|(start, _)| start.len());
        models.get(model).or(longest.map(|(_, prices)| prices)).copied()
    }
}

impl fmt::Debug for Prices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prices").field("currency", &self.table.currency).finish_non_exhaustive()
    }
}

/// The error of [`Prices`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PricesError {
    /// The table cannot be read. Carries the reason.
    #[error("the table of prices is invalid: {0}")]
    Table(String),
    /// The price of the model with this name is not known.
    #[error(
        "the price of the model `{0}` is not known; add it to the table, or set `OnUnknownPrice::WorstPrice`"
    )]
    UnknownModel(String),
}
