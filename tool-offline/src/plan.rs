//! Plans the calls for a question.
//!
//! 1. The question is split into clauses: at the end of sentences, and at "and" and commas if both sides can stand alone.
//! 2. The words of a clause mention tools. Words that neither name a tool or a parameter nor are stop words are values.
//! 3. The last tool that is mentioned takes the values behind it. Each tool before it takes the result and the values that are left:
//!    "the square root of the sum of 9 and 16".
//! 4. A clause without a tool repeats the tool of the clause before with its own values: "and in Rome?".

use std::collections::HashMap;
use std::ops::Range;

use serde_json::Value;
use tool_core::model::ToolDefinition;

use crate::facts::{Fact, FactKind, Question};
use crate::fill::fill;
use crate::form::Form;
use crate::text::TokenKind;
use crate::words::keys;

/// The tools that one clause mentions.
const MAX_MENTIONS: usize = 8;

/// A tool with the words that name it.
#[derive(Debug)]
pub(crate) struct Tool<'a> {
    pub(crate) name: &'a str,
    pub(crate) form: Form,
    name_keys: Vec<String>,
    /// The words of the description that are not in the name.
    description_keys: Vec<String>,
}

/// The text of a result, or of an error.
pub(crate) type Outcome = Result<String, String>;

/// A planned call.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) tool: usize,
    pub(crate) range: Range<usize>,
    pub(crate) state: StepState,
    /// The steps whose results it uses.
    pub(crate) needs: Vec<usize>,
}

#[derive(Debug)]
pub(crate) enum StepState {
    Done(String),
    Failed(String),
    /// It can be called with these arguments.
    Ready(Value),
    /// It needs a result that is not there yet.
    Waiting,
    /// A step that it needs has no result.
    Blocked,
    /// There is no value for these parameters.
    Missing(Vec<String>),
}

#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    /// The parts of the question that no tool fits.
    pub(crate) unmatched: Vec<Range<usize>>,
}

/// The steps of a clause. Each needs the steps before it.
#[derive(Default)]
struct Chain {
    steps: Vec<Step>,
    is_complete: bool,
    /// A number or a quotation is left, or an inner step lacks a value, so the clause is not understood.
    has_rest: bool,
    /// The number of words that are arguments.
    used: usize,
}

impl Step {
    /// Returns the value of the step with this number for the steps that follow.
    fn result(&self, number: usize) -> Fact {
        let fact = match &self.state {
            StepState::Done(text) => Fact::new(FactKind::Result, text),
            StepState::Ready(_) | StepState::Waiting => Fact::new(FactKind::Pending, ""),
            _ => Fact::new(FactKind::Failed, ""),
        };
        Fact { step: Some(number), ..fact }
    }
}

/// A tool that a clause mentions, and the first word that does.
#[derive(Clone, Copy, Debug)]
struct Mention {
    tool: usize,
    at: usize,
}

impl<'a> Tool<'a> {
    pub(crate) fn new(definition: &'a ToolDefinition) -> Self {
        let description = definition.description().unwrap_or_default();
        let form = Form::new(definition.parameters(), description);
        let mut name_keys = keys(definition.name());
        name_keys.dedup();
        let description_keys = keys(description).into_iter().filter(|key| !name_keys.contains(key)).collect();
        Self { name: definition.name(), form, name_keys, description_keys }
    }

    /// Returns `true` if the word is no value for the tool, because it names the tool, a parameter or a choice.
    pub(crate) fn explains(&self, question: &Question<'_>, at: usize) -> bool {
        let key = &question.keys[at];
        let is_lower = !question.tokens[at].text.starts_with(char::is_uppercase);
        self.name_keys.contains(key)
            || self.form.explains(key)
            || is_lower && self.description_keys.contains(key)
    }

    /// Returns the words that mention the tool, and how well they do. Words of its name that are missing count against it.
    fn mention(
        &self,
        question: &Question<'_>,
        words: &[usize],
        must_be_named: bool,
    ) -> Option<(Vec<usize>, f64)> {
        let find = |key: &String| words.iter().copied().find(|at| question.keys[*at] == *key);
        let named: Vec<_> = self.name_keys.iter().filter_map(find).collect();
        let missing = self.name_keys.len() - named.len();
        if must_be_named && (missing > 0 || named.is_empty()) {
            return None;
        }
        let described: Vec<_> = self.description_keys.iter().filter_map(find).collect();
        // Between tools with names of one meaning, such as `add` and `sum`, the one in the question's own words is meant.
        let name = self.name.to_lowercase();
        let literal = named.iter().filter(|at| name.contains(&*question.word(**at))).count();
        let score = 2.0 * named.len() as f64 + 0.5 * literal as f64 + described.len() as f64 - missing as f64;
        let used = if named.is_empty() { described } else { named };
        (score > 0.0).then_some((used, score))
    }
}

/// Plans the calls for a question.
pub(crate) struct Planner<'a> {
    question: &'a Question<'a>,
    tools: &'a [Tool<'a>],
    /// The last result before the question.
    earlier: Option<Fact>,
    /// A tool is called even if the question mentions none.
    must_call: bool,
    clauses: Vec<Range<usize>>,
}

impl<'a> Planner<'a> {
    pub(crate) fn new(
        question: &'a Question<'a>,
        tools: &'a [Tool<'a>],
        earlier: Option<Fact>,
        must_call: bool,
    ) -> Self {
        let mut planner = Self { question, tools, earlier, must_call, clauses: Vec::new() };
        planner.clauses = planner.clauses();
        planner
    }

    /// Returns the plan once the steps with these numbers have outcomes.
    pub(crate) fn plan(&self, outcomes: &HashMap<usize, Outcome>) -> Plan {
        let mut plan = Plan::default();
        for clause in &self.clauses {
            let mentions = self.mentions(clause);
            let chain = match plan.steps.last() {
                Some(last) if mentions.is_empty() => self.repeat(clause, last.tool, &plan.steps, outcomes),
                _ if mentions.is_empty() => None,
                _ => {
                    Some(self.chain(clause, &mentions, &plan.steps, outcomes)).filter(|chain| !chain.has_rest)
                }
            };
            let has_content = self.question.keys[clause.clone()].iter().any(|key| !key.is_empty());
            match chain {
                Some(chain) => plan.steps.extend(chain.steps),
                None if has_content || self.clauses.len() == 1 => plan.unmatched.push(clause.clone()),
                None => {}
            }
        }
        if self.must_call && plan.steps.is_empty() {
            let call = |tool| self.chain(&self.question.all(), &[Mention { tool, at: 0 }], &[], outcomes);
            let calls = (0..self.tools.len()).map(call);
            plan.steps.extend(calls.filter(|call| call.is_complete).flat_map(|call| call.steps).next());
        }
        plan
    }

    fn clauses(&self) -> Vec<Range<usize>> {
        let (mut clauses, none) = (Vec::new(), HashMap::new());
        let is_end = |at: &usize| [".", "?", "!", ";", "then"].contains(&&*self.question.word(*at));
        let is_joint = |at: &usize| ["and", ","].contains(&&*self.question.word(*at));
        for sentence in split(self.question.all(), is_end) {
            let mut pieces = split(sentence, is_joint).into_iter();
            let Some(mut clause) = pieces.next() else { continue };
            let mut tool = None;
            for piece in pieces {
                let mentions = self.mentions(&clause);
                tool = mentions.first().map(|mention| mention.tool).or(tool);
                let is_complete = match tool {
                    Some(_) if !mentions.is_empty() => {
                        let chain = self.chain(&clause, &mentions, &[], &none);
                        chain.is_complete && !chain.has_rest
                    }
                    repeated => repeated.is_some(),
                };
                let repeats = |tool| self.repeat(&piece, tool, &[], &none).is_some();
                if is_complete && (!self.mentions(&piece).is_empty() || tool.is_some_and(repeats)) {
                    clauses.push(clause);
                    clause = piece;
                } else {
                    clause.end = piece.end;
                }
            }
            clauses.push(clause);
        }
        clauses
    }

    /// Returns the tools that a range mentions, in the order of the words. The one that fits best decides which words are left for
    /// the others.
    fn mentions(&self, range: &Range<usize>) -> Vec<Mention> {
        let mut words: Vec<_> = range.clone().filter(|at| !self.question.keys[*at].is_empty()).collect();
        let mut mentions = Vec::new();
        while mentions.len() < MAX_MENTIONS {
            let mention = |(tool, one): (usize, &Tool<'_>)| {
                let (used, score) = one.mention(self.question, &words, !mentions.is_empty())?;
                Some((tool, used, score))
            };
            let found = self.tools.iter().enumerate().filter_map(mention);
            // The first tool wins a tie.
            let Some((tool, used, _)) = found.reduce(|best, next| if next.2 > best.2 { next } else { best })
            else {
                break;
            };
            words.retain(|at| !used.contains(at));
            mentions.extend(used.into_iter().min().map(|at| Mention { tool, at }));
        }
        mentions.sort_by_key(|mention| mention.at);
        mentions
    }

    /// Returns the call of a clause that only has other values for the tool of the clause before.
    fn repeat(
        &self,
        clause: &Range<usize>,
        tool: usize,
        before: &[Step],
        outcomes: &HashMap<usize, Outcome>,
    ) -> Option<Chain> {
        let chain = self.chain(clause, &[Mention { tool, at: clause.start }], before, outcomes);
        let is_content = |at: &usize| match self.question.tokens[*at].kind {
            TokenKind::Word => !self.question.keys[*at].is_empty(),
            ref kind => *kind != TokenKind::Mark,
        };
        let content = clause.clone().filter(is_content).count();
        (chain.is_complete && chain.used > 0 && chain.used >= content).then_some(chain)
    }

    /// Returns one step per mention, the innermost first.
    fn chain(
        &self,
        range: &Range<usize>,
        mentions: &[Mention],
        before: &[Step],
        outcomes: &HashMap<usize, Outcome>,
    ) -> Chain {
        let is_explained =
            |at: usize| mentions.iter().any(|one| self.tools[one.tool].explains(self.question, at));
        let previous = before.last().map(|step| step.result(before.len() - 1));
        let mut free = self.question.facts(range, &is_explained, previous.as_ref().or(self.earlier.as_ref()));
        let mut chain = Chain { is_complete: true, ..Chain::default() };
        for (index, mention) in mentions.iter().enumerate().rev() {
            let is_behind = |fact: &&Fact| index == 0 || fact.at >= mention.at;
            let mut facts: Vec<_> = free.iter().filter(is_behind).cloned().collect();
            let fill = |facts: &[Fact]| fill(&self.tools[mention.tool].form, self.question, range, facts);
            let mut filled = fill(&facts);
            if let Some(previous) = previous.as_ref().filter(|_| index == 0 && !filled.missing.is_empty()) {
                // "Add 9 and 16, then subtract 5."
                facts.insert(0, Fact { at: range.start, ..previous.clone() });
                filled = fill(&facts);
            }
            let used: Vec<_> = filled.used.iter().map(|at| &facts[*at]).collect();
            free.retain(|fact| !used.iter().any(|used| used.at == fact.at));
            chain.used += used.iter().map(|fact| fact.text.split_whitespace().count()).sum::<usize>();
            chain.is_complete &= filled.missing.is_empty();
            // In "2 + 3 * 4", the last operator lacks a value.
            chain.has_rest |= index > 0 && !filled.missing.is_empty();
            let number = before.len() + chain.steps.len();
            let has = |kind| used.iter().any(|fact| fact.kind == kind);
            let state = match outcomes.get(&number).cloned() {
                _ if has(FactKind::Failed) => StepState::Blocked,
                _ if !filled.missing.is_empty() => StepState::Missing(filled.missing),
                _ if has(FactKind::Pending) => StepState::Waiting,
                Some(outcome) => outcome.map_or_else(StepState::Failed, StepState::Done),
                None => StepState::Ready(filled.arguments),
            };
            let needs = used.iter().filter_map(|fact| fact.step).collect();
            let step = Step { tool: mention.tool, range: range.clone(), state, needs };
            let place = free.partition_point(|fact| fact.at < mention.at);
            free.insert(place, Fact { at: mention.at, ..step.result(number) });
            chain.steps.push(step);
        }
        let is_rest =
            |kind: &FactKind| matches!(kind, FactKind::Value(TokenKind::Number(_) | TokenKind::Quoted));
        chain.has_rest |= free.iter().any(|fact| is_rest(&fact.kind));
        chain
    }
}

/// Splits a range at the tokens for which this holds, without empty parts.
fn split(range: Range<usize>, is_border: impl Fn(&usize) -> bool) -> Vec<Range<usize>> {
    let borders: Vec<_> = range.clone().filter(is_border).collect();
    let starts = [range.start].into_iter().chain(borders.iter().map(|at| at + 1));
    let ends = borders.iter().copied().chain([range.end]);
    starts.zip(ends).map(|(start, end)| start..end).filter(|part| !part.is_empty()).collect()
}
