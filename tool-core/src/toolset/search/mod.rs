//! Search for tools by words: an index of definitions, ranked by BM25.
//!
//! The index of a set is built once. Several sets, such as the tools of MCP servers, are searched together without being joined: the
//! frequencies that BM25 needs are summed up when a query comes in. Crates with full-text search (`tantivy`, `bm25`) index documents
//! without fields, or files; a ranking of tools needs the fields, the names most of all.
//!
//! The texts of tools can come from untrusted servers. A tool gains nothing by long or repeated text: its terms are
//! bounded, as are the occurrences of a term that count, and long fields weigh less.

mod words;
mod text;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use self::text::FIELDS;
use crate::content::first_chars;
use crate::model::{ToolDefinition, ToolDefinitions};
use crate::toolset::ToolSet;

/// The weights of the [fields](text::fields).
const WEIGHTS: [f64; FIELDS] = [2.0, 1.0, 0.5];

/// The usual constants of BM25: the saturation of counts, and the influence of a field's length.
const SATURATION: f64 = 1.2;
const LENGTH_INFLUENCE: f64 = 0.75;

/// The occurrences of a term in one field that count. A description that repeats a word is not more about it.
const MAX_COUNT: u16 = 3;

/// The weight of a similar term in place of the term of the query, times their similarity.
const SIMILAR_WEIGHT: f64 = 0.3;
const MIN_SIMILARITY: f64 = 0.65;
/// In bytes.
const MIN_SIMILAR_LENGTH: usize = 4;
/// The words of a query for which similar terms are looked up.
const MAX_COMPARED_WORDS: usize = 16;

/// The weight of the terms of a tool's name that the query does not contain. Of two tools, the one whose name says less else is first.
const UNMATCHED_NAME_WEIGHT: f64 = 0.1;

/// The characters and terms of a query that are read.
const MAX_QUERY_CHARS: usize = 4_000;
const MAX_QUERY_TERMS: usize = 200;

impl ToolSet {
    /// Returns the tools that match a query best, best first and at most `limit`: words of a question, or keywords. Tools without any
    /// of the words or similar words are not among them.
    ///
    /// The search compares names, descriptions, and the names, descriptions and possible values of parameters. It is
    /// deterministic and needs no model. The index is built on the first search of a set.
    /// [`AgentBuilder::tool_search`](crate::agent::AgentBuilder::tool_search) lets a model search.
    ///
    /// ```
    /// use tool_core::{tool, tools};
    ///
    /// #[tool("Sums two numbers")]
    /// fn sum(a: f64, b: f64) -> f64 {
    ///     a + b
    /// }
    ///
    /// #[tool("Returns the weather forecast of a city")]
    /// fn forecast(city: String) {}
    ///
    /// let tools = tools![sum, forecast];
    /// let found = tools.search("What is the weather in Rome?", 5);
    /// assert_eq!(found[0].name(), "forecast");
    /// assert!(tools.search("pancakes", 5).is_empty());
    /// ```
    #[must_use]
    pub fn search(&self, query: &str, limit: usize) -> Vec<&ToolDefinition> {
        search([self.definitions()], query, limit)
    }
}

/// Returns the definitions in these sets that match a query best, best first.
pub(crate) fn search<'a>(
    sets: impl IntoIterator<Item = &'a ToolDefinitions>,
    query: &str,
    limit: usize,
) -> Vec<&'a ToolDefinition> {
    let sets: Vec<_> = sets.into_iter().collect();
    let indices: Vec<_> = sets.iter().map(|set| set.encoded(SearchIndex::new)).collect();
    let statistics = Statistics::new(indices.iter().map(|index| &**index).collect());
    let query = read_query(query, &statistics);
    let mut found = Vec::new();
    for (index, set) in indices.iter().zip(&sets) {
        let scores = index.scores(&query, &statistics);
        found.extend(scores.into_iter().zip(set.iter()).filter_map(|(score, one)| Some((score?, one))));
    }
    // Stable, so that tools with equal scores keep their order.
    found.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    found.into_iter().take(limit).map(|(_, definition)| definition).collect()
}

/// Returns the names of the tools by their first word, the largest group first.
pub(crate) fn name_groups<'a>(
    tools: impl IntoIterator<Item = &'a ToolDefinition>,
) -> Vec<(&'a str, Vec<&'a str>)> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in tools.into_iter().map(ToolDefinition::name) {
        groups.entry(words::first_word(name)).or_default().push(name);
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, names)| Reverse(names.len()));
    groups
}

/// The index of a set of definitions.
#[derive(Default)]
struct SearchIndex {
    terms: HashMap<String, Vec<Posting>>,
    /// The terms that are compared by similarity, with the number of their grams.
    compared: Vec<(String, u16)>,
    /// The positions in `compared` of the terms with a gram.
    grams: HashMap<Gram, Vec<u32>>,
    tools: Vec<IndexedTool>,
}

/// Three neighbouring letters of a term.
type Gram = [char; 3];

/// The occurrences of a term in a tool.
struct Posting {
    tool: usize,
    counts: [u16; FIELDS],
}

struct IndexedTool {
    lengths: [u16; FIELDS],
    name: BTreeSet<String>,
}

impl SearchIndex {
    fn new(definitions: &[ToolDefinition]) -> Self {
        let mut index = Self::default();
        definitions.iter().for_each(|definition| index.add(definition));
        index
    }

    fn add(&mut self, definition: &ToolDefinition) {
        let tool = self.tools.len();
        let fields = text::fields(definition);
        let mut lengths = [0; FIELDS];
        for (field, terms) in fields.iter().enumerate() {
            for term in terms {
                lengths[field] += 1;
                if !self.terms.contains_key(term) {
                    self.add_compared(term);
                }
                let postings = self.terms.entry(term.clone()).or_default();
                if postings.last().is_none_or(|last| last.tool != tool) {
                    postings.push(Posting { tool, counts: [0; FIELDS] });
                }
                if let Some(last) = postings.last_mut() {
                    last.counts[field] = (last.counts[field] + 1).min(MAX_COUNT);
                }
            }
        }
        let [name, ..] = fields;
        self.tools.push(IndexedTool { lengths, name: name.into_iter().collect() });
    }

    fn add_compared(&mut self, term: &str) {
        let Ok(position) = u32::try_from(self.compared.len()) else { return };
        if term.len() >= MIN_SIMILAR_LENGTH {
            let grams = grams(term);
            self.compared.push((term.to_owned(), grams.len() as u16));
            grams.into_iter().for_each(|gram| self.grams.entry(gram).or_default().push(position));
        }
    }

    /// Returns the terms that are similar to a word, with their similarity: the share of groups of letters that they have in common,
    /// Dice's coefficient.
    fn similar(&self, word: &str) -> impl Iterator<Item = (&str, f64)> {
        let grams = grams(word);
        let mut common = vec![0_u16; self.compared.len()];
        for position in grams.iter().filter_map(|gram| self.grams.get(gram)).flatten() {
            common[*position as usize] += 1;
        }
        self.compared.iter().zip(common).filter(|(_, common)| *common > 0).filter_map(
            move |((term, count), common)| {
                let all = grams.len() + usize::from(*count);
                let similarity = 2.0 * f64::from(common) / all as f64;
                (similarity >= MIN_SIMILARITY).then_some((&**term, similarity))
            },
        )
    }

    /// Returns the score of each tool, or `None` if nothing of the query matches.
    fn scores(&self, query: &Query, statistics: &Statistics<'_>) -> Vec<Option<f64>> {
        let mut scores = vec![None; self.tools.len()];
        let mut add = |tool: usize, score: f64| *scores[tool].get_or_insert(0.0) += score;
        for (term, weight) in query {
            let Some(postings) = self.terms.get(term) else { continue };
            let rarity = statistics.rarity(term);
            for posting in postings {
                let count = statistics.weighted_count(posting, &self.tools[posting.tool]);
                add(posting.tool, weight * rarity * count * (SATURATION + 1.0) / (count + SATURATION));
            }
        }
        for (score, tool) in scores.iter_mut().zip(&self.tools) {
            let Some(score) = score else { continue };
            let unmatched = tool.name.iter().filter(|term| !query.contains_key(*term));
            *score -= unmatched.map(|term| statistics.rarity(term)).sum::<f64>() * UNMATCHED_NAME_WEIGHT;
        }
        scores
    }
}

/// The frequencies of terms and the lengths of fields in all sets that are searched together.
struct Statistics<'a> {
    indices: Vec<&'a SearchIndex>,
    tools: f64,
    mean_lengths: [f64; FIELDS],
}

impl<'a> Statistics<'a> {
    fn new(indices: Vec<&'a SearchIndex>) -> Self {
        let tools = indices.iter().map(|index| index.tools.len()).sum::<usize>().max(1) as f64;
        let mut mean_lengths = [0.0; FIELDS];
        for tool in indices.iter().flat_map(|index| &index.tools) {
            for (mean, length) in mean_lengths.iter_mut().zip(tool.lengths) {
                *mean += f64::from(length) / tools;
            }
        }
        Self { indices, tools, mean_lengths }
    }

    /// Returns the inverse document frequency of a term.
    fn rarity(&self, term: &str) -> f64 {
        let tools_with = self.indices.iter().map(|index| index.terms.get(term).map_or(0, Vec::len));
        let with = tools_with.sum::<usize>() as f64;
        (1.0 + (self.tools - with + 0.5) / (with + 0.5)).ln()
    }

    fn weighted_count(&self, posting: &Posting, tool: &IndexedTool) -> f64 {
        let field = |field: usize| {
            let length = f64::from(tool.lengths[field]) / self.mean_lengths[field].max(f64::MIN_POSITIVE);
            let norm = 1.0 - LENGTH_INFLUENCE + LENGTH_INFLUENCE * length;
            WEIGHTS[field] * f64::from(posting.counts[field]) / norm
        };
        (0..FIELDS).map(field).sum()
    }
}

/// The terms of a query with their weights: its own terms, and with less weight those that are similar.
type Query = BTreeMap<String, f64>;

fn read_query(text: &str, statistics: &Statistics<'_>) -> Query {
    let words = words::terms(first_chars(text, MAX_QUERY_CHARS)).take(MAX_QUERY_TERMS);
    let mut query = Query::new();
    let mut long = Vec::new();
    for word in words {
        if query.insert(word.clone(), 1.0).is_none() && word.len() >= MIN_SIMILAR_LENGTH {
            long.push(word);
        }
    }
    // Those that no tool has need similar terms most. The sort is stable.
    long.sort_by_key(|word| statistics.indices.iter().any(|index| index.terms.contains_key(word)));
    for word in long.iter().take(MAX_COMPARED_WORDS) {
        for (other, similarity) in statistics.indices.iter().flat_map(|index| index.similar(word)) {
            let weight = query.entry(other.to_owned()).or_insert(0.0);
            *weight = weight.max(SIMILAR_WEIGHT * similarity);
        }
    }
    query
}

/// Returns the distinct groups of three letters of a term, with its beginning and end.
fn grams(term: &str) -> Vec<Gram> {
    let chars: Vec<_> = ['^'].into_iter().chain(term.chars()).chain(['$']).collect();
    let mut grams: Vec<_> = chars.windows(3).map(|gram| [gram[0], gram[1], gram[2]]).collect();
    grams.sort_unstable();
    grams.dedup();
    grams
}
