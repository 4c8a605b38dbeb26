//! Chooses tools: matches the words of a question with the names, descriptions and parameters on offer.

use super::facts::is_listed;
use super::schema::{self, Shape, Slot};
use super::thesaurus::{Term, parts, terms, terms_of};
use super::words::Text;
use crate::ToolDefinition;

/// What a word is worth by where the tool has it.
const IN_NAME: f64 = 3.0;
const IN_DESCRIPTION: f64 = 1.0;
const IN_PARAMETER: f64 = 1.0;

/// A rarity below which a word of a description is on offer everywhere and tells no tools apart.
const COMMON: f64 = 0.3;

/// A tool on offer, and its words.
#[derive(Debug)]
pub(super) struct Tool<'a> {
    pub(super) definition: &'a ToolDefinition,
    pub(super) slots: Vec<Slot>,
    name: Vec<Term>,
    about: Vec<Term>,
    parameters: Vec<Term>,
}

/// The tools on offer.
#[derive(Debug)]
pub(super) struct Tools<'a>(pub(super) Vec<Tool<'a>>);

/// A tool that a part of a question speaks of.
#[derive(Clone, Debug)]
pub(super) struct Mention {
    pub(super) tool: usize,
    pub(super) score: f64,
    /// The terms, by position, that the tool's name explains, and those that its parameters explain.
    pub(super) named: Vec<usize>,
    pub(super) parameters: Vec<usize>,
    /// The first token of what its name explains; else of the part.
    pub(super) at: usize,
    /// Every word of its name is there.
    pub(super) is_complete: bool,
    /// It may be meant; not merely one word of many.
    opens: bool,
}

impl<'a> Tool<'a> {
    fn new(definition: &'a ToolDefinition) -> Self {
        let description = definition.description().unwrap_or("");
        let slots = schema::slots(definition.parameters(), description);
        // In `get_user_by_id`, the user is what it is about, the id is how.
        let words = parts(definition.name());
        let is_how = |word: &String| is_listed("by in from with of for", word);
        let head = words.iter().position(is_how).filter(|at| *at > 0).unwrap_or(words.len());
        let (head, how) = words.split_at(head);
        let of_words = |words: &[String]| terms(words.iter().map(|word| (0, &**word)));
        let mut name = of_words(head);
        if name.iter().any(|term| !term.is_light) {
            name.retain(|term| !term.is_light);
        }
        let about = of_words(how).into_iter().chain(terms_of(description)).filter(|term| !term.is_light);
        let values = slots.iter().flat_map(|slot| match &slot.kind {
            Shape::OneOf(values) => values.iter().filter_map(|value| value.as_str()).flat_map(terms_of).collect(),
            _ => Vec::new(),
        });
        let parameters = slots.iter().flat_map(|slot| slot.name.clone()).chain(values).collect();
        Self { definition, about: about.collect(), name, parameters, slots }
    }

    pub(super) fn name(&self) -> &str {
        self.definition.name()
    }

    /// How much a term says for the tool.
    fn weight(&self, term: &Term) -> f64 {
        if term.is_light && !self.name.iter().all(|word| word.is_light) {
            return 0.0;
        }
        let named = IN_NAME * term.likeness_to_any(&self.name);
        let told = IN_DESCRIPTION * term.likeness_to_any(&self.about);
        named.max(told).max(IN_PARAMETER * term.likeness_to_any(&self.parameters))
    }

    pub(super) fn explains(&self, term: &Term) -> bool {
        self.weight(term) > 0.0
    }

    /// A part of a question, read as one that means this tool.
    fn mention(&self, tool: usize, terms: &[Term], rarity: &[f64]) -> Mention {
        let mut score = 0.0;
        let (mut named, mut parameters) = (Vec::new(), Vec::new());
        let (mut told, mut meant) = (0, 0);
        let all_light = self.name.iter().all(|word| word.is_light);
        for (at, (term, rarity)) in terms.iter().zip(rarity).enumerate() {
            if term.is_light && !all_light {
                continue;
            }
            meant += 1;
            score += self.weight(term) * rarity;
            // Of a word that is there twice, the second may be a value: "count the words of word salad".
            let is_first = !terms.iter().take(at).any(|before| before.stem == term.stem);
            if is_first && term.likeness_to_any(&self.name) > 0.0 {
                named.push(at);
            } else if is_first && term.likeness_to_any(&self.parameters) > 0.0 {
                parameters.push(at);
            } else if term.likeness_to_any(&self.about) > 0.0 && *rarity > COMMON {
                told += 1;
            }
        }
        let of_name = |at: &usize| terms.get(*at);
        let found = |word: &&Term| named.iter().filter_map(of_name).any(|term| term.likeness(word) > 0.0);
        let (count, has_head) = (self.name.iter().filter(found).count(), self.name.last().is_some_and(|last| found(&last)));
        let is_complete = count > 0 && count == self.name.len();
        let left = meant - named.len() - parameters.len() - told;
        let mostly = 2 * count > self.name.len() || 2 * count == self.name.len() && has_head;
        let opens = count > 0 && mostly
            || told >= 2 && named.len() + told + parameters.len() > left
            || count == 0 && told > 0 && 2 * told > meant;
        let at = named.first().map_or(0, |at| terms.get(*at).map_or(0, |term| term.at.start));
        if count > 0 {
            score += 2.0 * f64::from(u8::try_from(count).unwrap_or(u8::MAX)) / self.name.len() as f64;
        }
        Mention { tool, score, named, parameters, at, is_complete, opens }
    }
}

impl<'a> Tools<'a> {
    pub(super) fn new(definitions: &'a [ToolDefinition]) -> Self {
        Self(definitions.iter().map(Tool::new).collect())
    }

    pub(super) fn get(&self, tool: usize) -> Option<&Tool<'a>> {
        self.0.get(tool)
    }

    /// Every tool as what a part of a question may mean, the best first.
    pub(super) fn ranked(&self, terms: &[Term]) -> Vec<Mention> {
        let all = self.0.len() as f64 + 1.0;
        let rarity = |term: &Term| {
            let having = self.0.iter().filter(|tool| tool.explains(term)).count().max(1) as f64;
            (all / having).ln() / all.ln()
        };
        let rarity: Vec<f64> = terms.iter().map(rarity).collect();
        let mention = |(at, tool): (usize, &Tool<'_>)| tool.mention(at, terms, &rarity);
        let mut mentions: Vec<_> = self.0.iter().enumerate().map(mention).collect();
        mentions.sort_by(|one, other| other.score.total_cmp(&one.score));
        mentions
    }

    /// The tools that a part of a question may mean, the best first.
    pub(super) fn meant(&self, text: &Text, terms: &[Term]) -> Vec<Mention> {
        let ranked = self.ranked(terms);
        let complete: Vec<_> = ranked.iter().filter(|mention| mention.is_complete).map(|one| one.tool).collect();
        let is_wanted = |mention: &&Mention| {
            // What is to be done first must be this tool's doing, or that of another which is asked for too.
            let does = |term: &Term| {
                let mut doers = complete.iter().chain([&mention.tool]).filter_map(|tool| self.get(*tool));
                doers.any(|tool| tool.explains(term))
            };
            let first_named = mention.named.first().copied().unwrap_or(terms.len());
            let before = || terms.iter().take(first_named);
            mention.opens && before().all(|term| does(term) || !is_demand(text, term, terms))
        };
        ranked.iter().filter(is_wanted).cloned().collect()
    }

    /// The other tools that a part of a question means, which gave up the words of the first: all of their
    /// names is in what is left.
    pub(super) fn nested(&self, text: &Text, terms: &[Term], main: &Mention) -> Vec<Mention> {
        let mut found = vec![main.clone()];
        let mut taken: Vec<usize> = main.named.iter().chain(&main.parameters).copied().collect();
        loop {
            let (places, left): (Vec<_>, Vec<_>) =
                terms.iter().enumerate().filter(|(at, _)| !taken.contains(at)).map(|(at, term)| (at, term.clone())).unzip();
            let is_new = |mention: &Mention| mention.is_complete && found.iter().all(|one| one.tool != mention.tool);
            let Some(mut next) = self.ranked(&left).into_iter().find(is_new) else {
                break;
            };
            let original = |at: &mut usize| *at = places.get(*at).copied().unwrap_or(usize::MAX);
            next.named.iter_mut().for_each(original);
            next.parameters.clear();
            taken.extend(&next.named);
            found.push(next);
        }
        found.sort_by_key(|mention| mention.at);
        found.retain(|mention| mention.at < text.all().end);
        found
    }
}

/// A term that asks for something to be done: a known operation, or a verb that a sentence begins with and
/// that has an object.
pub(super) fn is_demand(text: &Text, term: &Term, terms: &[Term]) -> bool {
    let is_first = terms.first().is_some_and(|first| first.at == term.at);
    let object = is_listed("the a an my our this that it all me us him her", text.word(term.at.end));
    !term.is_light && (term.is_operation() || is_first && object && begins(text, term.at.start))
}

/// Nothing but politeness and joints stand before.
fn begins(text: &Text, at: usize) -> bool {
    let mut before = (0..at).rev().map(|at| text.word(at));
    let polite = |word: &&str| is_listed("please and then also can could would you so now", word);
    !before.find(|word| !polite(word)).is_some_and(|word| !matches!(word, "." | "," | ";" | "!" | "?" | ":"))
}
