//! Plans the calls for a question.
//!
//! 1. The question is split into clauses: at the end of sentences, and at "and" and commas if both sides can stand alone.
//! 2. The words of a clause mention tools. Words that neither name a tool or a parameter nor are stop words are values.
//! 3. The last tool that is mentioned takes the values behind it. Each tool before it takes the result and the values that are left:
//!    "the square root of the sum of 9 and 16".
//! 4. A clause without a tool repeats the tool of the clause before with its own values: "and in Rome?".

use std::ops::Range;

use tool_core::model::ToolDefinition;

use crate::facts::{Fact, FactKind, Question};
use crate::fill::{Filled, fill};
use crate::form::{Form, Slot, SlotKind};
use crate::text::TokenKind;
use crate::words::keys;

/// The tools that one clause mentions.
const MAX_MENTIONS: usize = 8;

/// A tool with the words that name it.
#[derive(Debug)]
pub(crate) struct Tool<'a> {
    pub(crate) name: &'a str,
    pub(crate) form: Form<'a>,
    name_keys: Vec<String>,
    /// The words of the description that are not in the name.
    description_keys: Vec<String>,
}

/// A planned call.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) tool: usize,
    pub(crate) range: Range<usize>,
    pub(crate) facts: Vec<Fact>,
    /// The steps whose results it uses.
    pub(crate) needs: Vec<usize>,
    pub(crate) is_complete: bool,
}

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    /// The parts of the question that no tool fits.
    pub(crate) unmatched: Vec<Range<usize>>,
}

/// The steps of a clause. Each needs the steps before it.
struct Chain {
    steps: Vec<Step>,
    /// A number or a quotation is left, or an inner step lacks a value, so the clause is not understood.
    has_rest: bool,
}

impl Chain {
    fn is_complete(&self) -> bool {
        self.steps.iter().all(|step| step.is_complete)
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

struct Planner<'a> {
    question: &'a Question<'a>,
    tools: &'a [Tool<'a>],
    /// The last result before the question.
    earlier: Option<&'a str>,
    plan: Plan,
}

/// Plans the calls for a question. With `must_call`, a tool is called even if the question mentions none.
pub(crate) fn plan(
    question: &Question<'_>,
    tools: &[Tool<'_>],
    earlier: Option<&str>,
    must_call: bool,
) -> Plan {
    let plan = Plan { steps: Vec::new(), unmatched: Vec::new() };
    let mut planner = Planner { question, tools, earlier, plan };
    for clause in planner.clauses() {
        match planner.steps(&clause) {
            Some(steps) => planner.plan.steps.extend(steps),
            None if question.keys[clause.clone()].iter().all(String::is_empty)
                && question.all() != clause => {}
            None => planner.plan.unmatched.push(clause),
        }
    }
    if must_call && planner.plan.steps.is_empty() {
        let call = |tool| planner.chain(&question.all(), &[Mention { tool, at: 0 }]);
        let calls: Vec<_> = (0..tools.len()).map(call).collect();
        if let Some(call) = calls.iter().find(|call| call.is_complete()).or(calls.first()) {
            planner.plan = Plan { steps: call.steps.clone(), unmatched: Vec::new() };
        }
    }
    planner.plan
}

impl Planner<'_> {
    fn clauses(&self) -> Vec<Range<usize>> {
        let mut clauses = Vec::new();
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
                        let chain = self.chain(&clause, &mentions);
                        chain.is_complete() && !chain.has_rest
                    }
                    repeated => repeated.is_some(),
                };
                if is_complete && (!self.mentions(&piece).is_empty() || self.repeat(&piece, tool).is_some()) {
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

    /// Returns the steps of a clause, or `None` if no tool does what it asks for.
    fn steps(&self, clause: &Range<usize>) -> Option<Vec<Step>> {
        let mentions = self.mentions(clause);
        if mentions.is_empty() {
            return self.repeat(clause, self.plan.steps.last().map(|step| step.tool));
        }
        let chain = self.chain(clause, &mentions);
        (!chain.has_rest).then_some(chain.steps)
    }

    /// Returns the call of a clause that only has other values for the tool of the clause before.
    fn repeat(&self, clause: &Range<usize>, tool: Option<usize>) -> Option<Vec<Step>> {
        let tool = tool?;
        let chain = self.chain(clause, &[Mention { tool, at: clause.start }]);
        let facts = chain.steps.iter().flat_map(|step| &step.facts);
        let used = facts.map(|fact| fact.text.split_whitespace().count()).sum::<usize>();
        let content = clause.clone().filter(|at| self.question.is_content(*at)).count();
        let is_list = |slot: &Slot| matches!(slot.kind, SlotKind::List(_));
        let takes_list = self.tools[tool].form.slots.iter().any(is_list);
        (chain.is_complete() && used > 0 && used >= content && !takes_list).then_some(chain.steps)
    }

    /// Returns one step per mention, the innermost first.
    fn chain(&self, range: &Range<usize>, mentions: &[Mention]) -> Chain {
        let is_explained =
            |at: usize| mentions.iter().any(|one| self.tools[one.tool].explains(self.question, at));
        let previous = self.plan.steps.len().checked_sub(1);
        let reference = previous.map(FactKind::Pending).or(self.earlier.map(|_| FactKind::Result));
        let earlier = self.earlier.unwrap_or_default();
        let mut free = self.question.facts(range, &is_explained, reference.as_ref(), earlier);
        let (mut steps, mut has_rest) = (Vec::new(), false);
        for (index, mention) in mentions.iter().enumerate().rev() {
            let is_behind = |fact: &&Fact| index == 0 || fact.at >= mention.at;
            let mut facts: Vec<_> = free.iter().filter(is_behind).cloned().collect();
            let mut filled = self.fill(mention, range, &facts);
            if let Some(previous) = previous.filter(|_| index == 0 && !filled.missing.is_empty()) {
                // "Add 9 and 16, then subtract 5."
                facts.insert(0, Fact::pending(previous, range.start));
                filled = self.fill(mention, range, &facts);
            }
            let used: Vec<_> = filled.used.iter().map(|at| facts[*at].clone()).collect();
            free.retain(|fact| !used.iter().any(|used| used.at == fact.at));
            let place = free.partition_point(|fact| fact.at < mention.at);
            free.insert(place, Fact::pending(self.plan.steps.len() + steps.len(), mention.at));
            let needs = used.iter().filter_map(|fact| match fact.kind {
                FactKind::Pending(step) => Some(step),
                _ => None,
            });
            let (needs, is_complete) = (needs.collect(), filled.missing.is_empty());
            // In "2 + 3 * 4", the last operator lacks a value.
            has_rest |= index > 0 && !is_complete;
            // In the order of the question, for a fill with the same outcome once the results are known.
            facts.retain(|fact| used.iter().any(|used| used.at == fact.at));
            steps.push(Step { tool: mention.tool, range: range.clone(), facts, needs, is_complete });
        }
        let is_rest =
            |kind: &FactKind| matches!(kind, FactKind::Value(TokenKind::Number(_) | TokenKind::Quoted));
        has_rest |= free.iter().any(|fact| is_rest(&fact.kind));
        Chain { steps, has_rest }
    }

    fn fill(&self, mention: &Mention, range: &Range<usize>, facts: &[Fact]) -> Filled {
        fill(&self.tools[mention.tool].form, self.question, range, facts)
    }
}

/// Splits a range at the tokens for which this holds, without empty parts.
fn split(range: Range<usize>, is_border: impl Fn(&usize) -> bool) -> Vec<Range<usize>> {
    let borders: Vec<_> = range.clone().filter(is_border).collect();
    let starts = [range.start].into_iter().chain(borders.iter().map(|at| at + 1));
    let ends = borders.iter().copied().chain([range.end]);
    starts.zip(ends).map(|(start, end)| start..end).filter(|part| !part.is_empty()).collect()
}
