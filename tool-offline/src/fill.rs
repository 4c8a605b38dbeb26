//! Fills in the arguments of a call: the best pairs of parameters and values first, and no value twice.

use std::ops::Range;

use crate::parameters::{Arguments, Parameter, ParameterKind, Parameters};
use crate::question::{Candidate, Question, Source};
use crate::text::TokenKind;
use crate::words::{NEGATIONS, PREPOSITIONS, is_in, keywords};

/// The score from which a value is meant for an optional parameter.
const MIN_OPTIONAL_SCORE: f64 = 3.5;

/// What makes required parameters come first, with any value that fits.
const REQUIRED_SCORE: f64 = 100.0;

/// Fills the parameters from the candidates and from the words in `range`. Returns also the candidates that are left.
pub(crate) fn fill(
    parameters: &Parameters,
    question: &Question<'_>,
    range: &Range<usize>,
    candidates: &[Candidate],
) -> (Arguments, Vec<Candidate>) {
    let mut pairs = Vec::new();
    for (index, parameter) in parameters.list.iter().enumerate() {
        let named = named_value(parameter, question, range);
        let named = named.map(|text| (MIN_OPTIONAL_SCORE, None, Source::Text(text)));
        let fitting = candidates.iter().enumerate().filter_map(|(candidate, value)| {
            Some((score(parameter, value)?, Some(candidate), value.source.clone()))
        });
        let bonus = if parameter.is_required { REQUIRED_SCORE } else { 0.0 };
        let scored = named.into_iter().chain(fitting);
        let scored = scored.map(|(score, candidate, source)| (bonus + score, index, candidate, source));
        pairs.extend(scored.filter(|(score, ..)| *score >= MIN_OPTIONAL_SCORE));
    }
    // Stable, so that equal pairs are in the order of the parameters and then of the values.
    pairs.sort_by(|(one, ..), (other, ..)| other.total_cmp(one));
    let mut sources = vec![None; parameters.list.len()];
    let mut used = Vec::new();
    for (_, parameter, candidate, source) in pairs {
        if sources[parameter].is_none() && !candidate.is_some_and(|candidate| used.contains(&candidate)) {
            sources[parameter] = Some(source);
            used.extend(candidate);
        }
    }
    let parameters = parameters.list.iter().zip(&sources);
    let missing = parameters.filter(|(parameter, source)| parameter.is_required && source.is_none());
    let missing = missing.map(|(parameter, _)| parameter.path.join(".")).collect();
    let unused = candidates.iter().enumerate().filter(|(candidate, _)| !used.contains(candidate));
    (Arguments { sources, missing }, unused.map(|(_, candidate)| candidate.clone()).collect())
}

/// Returns how well a candidate fits a parameter.
fn score(parameter: &Parameter, candidate: &Candidate) -> Option<f64> {
    let named = candidate.names.iter().filter(|name| parameter.words.contains(name)).count();
    let is_introduced = candidate.names.iter().any(|name| is_in(PREPOSITIONS, name));
    let is_capitalized = match &candidate.source {
        Source::Text(text) => parameter.kind.value(text).map(|_| text.starts_with(char::is_uppercase))?,
        Source::Step(_) => false,
    };
    let fit = match (&parameter.kind, candidate.kind) {
        (ParameterKind::Number | ParameterKind::Integer, None | Some(TokenKind::Number)) => {
            MIN_OPTIONAL_SCORE
        }
        (ParameterKind::Boolean, None) => 2.0,
        (ParameterKind::Text(TokenKind::Word), Some(TokenKind::Word)) => {
            1.0 + f64::from(is_capitalized) + f64::from(is_introduced)
        }
        (ParameterKind::Text(TokenKind::Word), Some(TokenKind::Quoted)) => 3.0,
        (ParameterKind::Text(wanted), Some(found)) if *wanted == found => 6.0,
        (ParameterKind::Text(TokenKind::Email), _) => return None,
        (ParameterKind::Text(_), None) => 1.0,
        (ParameterKind::Text(_), Some(_)) => 0.5,
        _ => return None,
    };
    Some(fit + 3.0 * named as f64)
}

/// Returns the value of a flag or of a choice that the words in a range name.
fn named_value(parameter: &Parameter, question: &Question<'_>, range: &Range<usize>) -> Option<String> {
    let position = |keyword: &String| range.clone().find(|at| question.tokens[*at].keyword == *keyword);
    if matches!(parameter.kind, ParameterKind::Boolean) {
        let at = parameter.words.iter().find_map(position)?;
        let is_negated = (range.start..at).rev().take(2).any(|at| question.is_in(NEGATIONS, at));
        return Some((!is_negated).to_string());
    }
    let is_named = |choice: &&String| {
        let keywords = keywords(choice);
        !keywords.is_empty() && keywords.iter().all(|keyword| position(keyword).is_some())
    };
    parameter.kind.choices().iter().find(is_named).cloned()
}
