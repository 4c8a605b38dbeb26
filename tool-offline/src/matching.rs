//! Matches the words of a question with the names, descriptions and parameters of the tools.

use std::ops::Range;

use crate::facts::is_listed;
use crate::slots::{self, Slot, SlotKind};
use crate::thesaurus::{Term, split_identifier, terms, terms_in};
use crate::tokens::{Text, TokenKind};
use tool_core::model::ToolDefinition;

/// The weight of a word by where it occurs in a tool.
const IN_NAME: f64 = 3.0;
const IN_DESCRIPTION: f64 = 1.0;
const IN_PARAMETER: f64 = 1.0;

/// Words of a description below this rarity are shared by too many tools to be evidence for one.
const COMMON: f64 = 0.3;

/// The number of tools that one clause can call, nested in each other.
const MAX_NESTED_TOOLS: usize = 8;

/// A tool on offer, with its words.
#[derive(Debug)]
pub(crate) struct Tool<'a> {
    pub(crate) definition: &'a ToolDefinition,
    pub(crate) slots: Vec<Slot>,
    name_terms: Vec<Term>,
    /// The words of the name that a question must contain; words that only name a parameter are not needed.
    needed: Vec<Term>,
    description_terms: Vec<Term>,
    parameters: Vec<Term>,
    /// The verb of the tool, if its name contains one. The question must request it.
    action: Option<Term>,
}

/// Nouns in names of tools that a question need not contain.
const GENERIC_NOUNS: &str = "info information details data record";

/// The tools on offer.
#[derive(Debug)]
pub(crate) struct Tools<'a>(pub(super) Vec<Tool<'a>>);

/// A match of a tool with a part of a question.
#[derive(Clone, Debug)]
pub(crate) struct Mention {
    pub(crate) tool: usize,
    pub(crate) score: f64,
    /// The tokens that the tool's name matches; those of them that it matches exactly; and the tokens that its
    /// parameters and its description match.
    pub(crate) named: Vec<Range<usize>>,
    pub(crate) exact: Vec<Range<usize>>,
    pub(crate) parameters: Vec<Range<usize>>,
    described: Vec<Range<usize>>,
    /// The question contains every needed word of the name.
    is_complete: bool,
    /// The match is strong enough for the question to mean this tool.
    is_plausible: bool,
}

impl Mention {
    /// Returns the first token that the tool's name matches.
    pub(crate) fn at(&self) -> usize {
        self.named.first().map_or(0, |named| named.start)
    }
}

impl<'a> Tool<'a> {
    fn new(definition: &'a ToolDefinition) -> Self {
        let description = definition.description().unwrap_or("");
        let slots = slots::read_slots(definition.parameters(), description);
        // In `get_user_by_id`, "user" is the subject and "id" a qualifier.
        let words = split_identifier(definition.name());
        let is_preposition = |word: &String| is_listed("by in from with of for", word);
        let head = words.iter().position(is_preposition).filter(|at| *at > 0).unwrap_or(words.len());
        let (head, qualifiers) = words.split_at(head);
        let terms_of_words = |words: &[String]| terms(words.iter().map(|word| (0, &**word)));
        let mut name_terms = terms_of_words(head);
        if name_terms.iter().any(|term| !term.is_light) {
            name_terms.retain(|term| !term.is_light);
        }
        let description_terms =
            terms_of_words(qualifiers).into_iter().chain(terms_in(description)).filter(|term| !term.is_light);
        let values = slots.iter().flat_map(|slot| match &slot.kind {
            SlotKind::OneOf(values) => {
                values.iter().filter_map(|value| value.as_str()).flat_map(terms_in).collect()
            }
            _ => Vec::new(),
        });
        let parameters = slots.iter().flat_map(|slot| slot.name_terms.clone()).chain(values).collect();
        let is_parameter =
            |term: &Term| slots.iter().any(|slot| slot.name_terms.iter().any(|name| name.stem == term.stem));
        let mut needed = name_terms.clone();
        if !name_terms.iter().all(is_parameter) {
            needed.retain(|term| !is_parameter(term));
        }
        // "Tell me more about the customer" means `get_customer_info`.
        let generic = terms_in(GENERIC_NOUNS);
        let is_generic = |term: &Term| generic.iter().any(|noun| noun.stem == term.stem);
        if !needed.iter().all(is_generic) {
            needed.retain(|term| !is_generic(term));
        }
        // The verb is the operation in the name, or else the first verb of the description if the name contains it.
        let verb = terms_in(description).into_iter().next();
        let is_action =
            |term: &&Term| term.is_operation() || verb.as_ref().is_some_and(|verb| verb.stem == term.stem);
        let action = needed.iter().find(is_action).filter(|_| needed.len() > 1).cloned();
        Self {
            definition,
            description_terms: description_terms.collect(),
            name_terms,
            needed,
            parameters,
            action,
            slots,
        }
    }

    pub(crate) fn name(&self) -> &str {
        self.definition.name()
    }

    /// Returns the weight of a term as evidence for the tool.
    fn weight(&self, term: &Term) -> f64 {
        if term.is_light && !self.name_terms.iter().all(|word| word.is_light) {
            return 0.0;
        }
        let named = IN_NAME * term.similarity_to_any(&self.name_terms);
        let described = IN_DESCRIPTION * term.similarity_to_any(&self.description_terms);
        named.max(described).max(IN_PARAMETER * term.similarity_to_any(&self.parameters))
    }

    pub(crate) fn matches_term(&self, term: &Term) -> bool {
        self.weight(term) > 0.0
    }

    /// Matches the tool with the terms of a part of a question.
    fn mention(&self, tool: usize, terms: &[Term], rarity: &[f64]) -> Mention {
        let none = Vec::new;
        let (named, exact, parameters, described) = (none(), none(), none(), none());
        let mut mention = Mention {
            tool,
            score: 0.0,
            named,
            exact,
            parameters,
            described,
            is_complete: false,
            is_plausible: false,
        };
        let (mut found, mut content_words) = (vec![false; self.needed.len()], 0);
        let all_light = self.name_terms.iter().all(|word| word.is_light);
        for (at, (term, rarity)) in terms.iter().zip(rarity).enumerate() {
            if term.is_light && !all_light {
                continue;
            }
            content_words += 1;
            mention.score += self.weight(term) * rarity;
            // The second occurrence of a word may be a value: "count the words of word salad".
            let is_first = !terms.iter().take(at).any(|before| before.stem == term.stem);
            if is_first && term.similarity_to_any(&self.name_terms) > 0.0 {
                mention.named.push(term.span.clone());
                mention.exact.extend(
                    self.name_terms.iter().find(|word| word.stem == term.stem).map(|_| term.span.clone()),
                );
                found
                    .iter_mut()
                    .zip(&self.needed)
                    .for_each(|(found, word)| *found |= term.similarity(word) > 0.0);
            } else if is_first && term.similarity_to_any(&self.parameters) > 0.0 {
                mention.parameters.push(term.span.clone());
            } else if term.similarity_to_any(&self.description_terms) > 0.0 && *rarity > COMMON {
                mention.described.push(term.span.clone());
            }
        }
        let (count, described) = (found.iter().filter(|found| **found).count(), mention.described.len());
        let explained = mention.named.len() + mention.parameters.len() + described;
        // Half of a name is enough only if it includes the last word of the name, literally.
        let has_head = self.needed.last().is_some_and(|head| terms.iter().any(|term| term.stem == head.stem));
        let mostly = 2 * count > self.needed.len() || 2 * count == self.needed.len() && has_head;
        mention.is_complete = count > 0 && count == self.needed.len();
        mention.is_plausible = count > 0 && mostly
            || described > 1 && 2 * explained > content_words
            || count == 0 && 2 * described > content_words;
        mention.score += if count > 0 { 2.0 * count as f64 / self.needed.len() as f64 } else { 0.0 };
        mention
    }

    /// Returns `true` for the tool's verb followed by values only: "Play Imagine by John Lennon", "Delete 12".
    fn has_only_values_after_verb(&self, text: &Text, terms: &[Term]) -> bool {
        let [verb, others @ ..] = terms else { return false };
        let is_value = |at: usize| {
            text.token(at).is_some_and(|token| {
                token.kind != TokenKind::Mark && !token.text.starts_with(char::is_lowercase)
            })
        };
        self.action.as_ref().is_some_and(|action| action.stem == verb.stem)
            && is_value(verb.span.end)
            && others.iter().all(|other| is_value(other.span.start))
    }

    /// Returns `true` if the question requests the tool's action, or the tool's name has none.
    fn is_action_requested(&self, text: &Text, terms: &[Term]) -> bool {
        // In "show me my mails", "mails" is a thing; in "mail Bob", "mail" is an action.
        let is_thing = |term: &Term| self.needed.iter().any(|word| word.stem == term.stem);
        let wants = |action: &Term, term: &Term| {
            term.stem == action.stem
                || term.similarity(action) > 0.0
                    && (!is_thing(term) || starts_sentence(text, term.span.start))
        };
        self.action.as_ref().is_none_or(|action| terms.iter().any(|term| wants(action, term)))
    }
}

impl<'a> Tools<'a> {
    pub(crate) fn new(definitions: impl Iterator<Item = &'a ToolDefinition>) -> Self {
        Self(definitions.map(Tool::new).collect())
    }

    pub(crate) fn get(&self, tool: usize) -> Option<&Tool<'a>> {
        self.0.get(tool)
    }

    /// Matches every tool with the terms and sorts the matches, best first.
    pub(crate) fn rank(&self, terms: &[Term]) -> Vec<Mention> {
        let all = self.0.len() as f64 + 1.0;
        let rarity = |term: &Term| {
            let having = self.0.iter().filter(|tool| tool.matches_term(term)).count().max(1) as f64;
            (all / having).ln() / all.ln()
        };
        let rarity: Vec<f64> = terms.iter().map(rarity).collect();
        let mention = |(at, tool): (usize, &Tool<'_>)| tool.mention(at, terms, &rarity);
        let mut mentions: Vec<_> = self.0.iter().enumerate().map(mention).collect();
        mentions.sort_by(|one, other| other.score.total_cmp(&one.score));
        mentions
    }

    /// Returns the matches strong enough to be meant, best first.
    pub(crate) fn plausible(&self, text: &Text, terms: &[Term]) -> Vec<Mention> {
        let ranked = self.rank(terms);
        let complete: Vec<_> =
            ranked.iter().filter(|mention| mention.is_complete).map(|one| one.tool).collect();
        let is_plausible = |mention: &&Mention| {
            let Some(tool) = self.get(mention.tool) else { return false };
            let is_plausible = mention.is_plausible || tool.has_only_values_after_verb(text, terms);
            // A request before the match must be served by this tool or by another complete match.
            let is_served = |term: &Term| {
                tool.matches_term(term)
                    || complete.iter().filter_map(|tool| self.get(*tool)).any(|tool| tool.matches_term(term))
            };
            let mut before = terms.iter().take_while(|term| mention.named.first() != Some(&term.span));
            is_plausible
                && tool.is_action_requested(text, terms)
                && !is_negated(text, mention.at())
                && before.all(|term| is_served(term) || !is_request(text, term, terms))
        };
        ranked.iter().filter(is_plausible).cloned().collect()
    }

    /// Returns all matches in the order of the words: the main tool, and the tools whose names match the remaining
    /// words. If the main tool lacks a value, the words of its description remain too.
    pub(crate) fn mentions(&self, terms: &[Term], main: &Mention, lacks: bool) -> Vec<Mention> {
        let mut found = vec![main.clone()];
        let described = main.described.iter().filter(|_| !lacks);
        let mut taken: Vec<_> = main.named.iter().chain(&main.parameters).chain(described).cloned().collect();
        while found.len() < MAX_NESTED_TOOLS {
            let left: Vec<_> = terms.iter().filter(|term| !taken.contains(&term.span)).cloned().collect();
            let Some(next) = self.rank(&left).into_iter().find(|mention| mention.is_complete) else {
                break;
            };
            taken.extend(next.named.iter().cloned());
            found.push(Mention { parameters: Vec::new(), ..next });
        }
        found.sort_by_key(Mention::at);
        found
    }
}

/// Returns `true` for a term that requests an action: a known operation, or a verb at the start of a sentence
/// followed by an object.
pub(crate) fn is_request(text: &Text, term: &Term, terms: &[Term]) -> bool {
    let is_first = terms.first().is_some_and(|first| first.span == term.span);
    let object = is_listed("the a an my our this that it all me us him her", text.word(term.span.end));
    // "New York" is not a request.
    let capital = text
        .token(term.span.start)
        .is_some_and(|token| token.text.chars().next().is_some_and(char::is_uppercase));
    let is_name =
        capital && !matches!(text.word(term.span.start.wrapping_sub(1)), "" | "." | "!" | "?" | ":");
    // Neither is "starting from 10 m/s" or "how many".
    let is_gerund = text.word(term.span.start).ends_with("ing") || text.word(term.span.start) == "how";
    !term.is_light
        && !is_name
        && !is_gerund
        && (term.is_operation() || is_first && object && starts_sentence(text, term.span.start))
}

/// Returns `true` if only polite words and conjunctions precede the token in its sentence.
fn starts_sentence(text: &Text, at: usize) -> bool {
    let mut before = (0..at).rev().map(|at| text.word(at));
    let polite = |word: &&str| is_listed("please and then also can could would you so now", word);
    !before.find(|word| !polite(word)).is_some_and(|word| !matches!(word, "." | "," | ";" | "!" | "?" | ":"))
}

/// Returns `true` if "do not" or similar precedes the token.
fn is_negated(text: &Text, at: usize) -> bool {
    let mut before =
        (at.saturating_sub(4)..at).rev().map(|at| text.word(at)).take_while(|word| !".,;:?!".contains(word));
    before.any(|word| is_listed("not never don't don’t dont avoid", word))
}
