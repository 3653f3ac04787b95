//! Grades the answers of the diagnosis to inputs from runs with a known limit.
//!
//! ```text
//!   input ──► diagnosis ──► one limit, high or certain ──► right or wrong
//!                      └──► "not decided" ──► open, if the limit is among three candidates and a test is given;
//!                                             otherwise a miss
//! ```

use std::fmt::{self, Write as _};

use fullpipe::classify::Confidence;
use fullpipe::{Diagnosis, Limit};
use serde_json::Value;

use crate::classifier_validation::is_right;
use crate::recorded::InputKind;

/// Required share of correct answers among the answers with high confidence or certainty.
pub const RIGHT: f64 = 0.98;
/// Maximum number of candidates in an undecided answer with the grade [`Grade::Open`].
const MOST_CANDIDATES: usize = 3;

/// Answer of the diagnosis to one input.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// One limit, with high confidence or certainty.
    Decided(Limit, Confidence),
    /// Candidates, each of which may stand for several limits, and the test that decides between
    /// them.
    Undecided(Vec<Vec<Limit>>, String),
    /// A limit with low confidence, without other candidates.
    Guess(Limit),
    /// No limit: the input was refused, with this message.
    None(String),
}

impl Answer {
    /// Returns the answer of a diagnosis.
    pub fn of(diagnosis: &Diagnosis) -> Self {
        if let Some(undecided) = &diagnosis.undecided {
            let candidates = undecided.candidates.iter().map(|one| one.limits.clone()).collect();
            return Self::Undecided(candidates, undecided.test.clone());
        }
        match diagnosis.findings.first() {
            Some(first) => Self::of_finding(first.limit, first.confidence),
            None => Self::None("no finding".into()),
        }
    }

    /// Returns the answer in the JSON document of an older build; such a document contains no candidates.
    pub fn of_document(document: &Value) -> Self {
        let of = |key: &str| document.pointer(&format!("/findings/0/{key}")).cloned().unwrap_or_default();
        match (serde_json::from_value(of("limit")), serde_json::from_value(of("confidence"))) {
            (Ok(limit), Ok(confidence)) => Self::of_finding(limit, confidence),
            _ => Self::None("no finding".into()),
        }
    }

    fn of_finding(limit: Limit, confidence: Confidence) -> Self {
        if confidence == Confidence::Low { Self::Guess(limit) } else { Self::Decided(limit, confidence) }
    }

    /// Returns the grade of this answer for a run that has the limit `truth`.
    pub fn grade(&self, truth: Limit) -> Grade {
        match self {
            Self::Decided(limit, _) if is_right(truth, *limit) => Grade::Right,
            Self::Decided(..) => Grade::Wrong,
            Self::Undecided(candidates, test) => {
                let has = candidates.iter().flatten().any(|limit| is_right(truth, *limit));
                let helps = has && candidates.len() <= MOST_CANDIDATES && !test.is_empty();
                if helps { Grade::Open } else { Grade::Misses }
            }
            Self::Guess(_) => Grade::Misses,
            Self::None(_) => Grade::None,
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decided(limit, confidence) => write!(f, "{limit}, {}", confidence.words()),
            Self::Undecided(candidates, _) => {
                let each =
                    |one: &Vec<Limit>| one.iter().map(|limit| limit.name()).collect::<Vec<_>>().join("/");
                write!(f, "not decided: {}", candidates.iter().map(each).collect::<Vec<_>>().join(", "))
            }
            Self::Guess(limit) => write!(f, "{limit}, low confidence, without candidates"),
            Self::None(message) => write!(f, "no answer: {message}"),
        }
    }
}

/// Grade of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// The correct limit is named with high confidence or certainty.
    Right,
    /// Another limit is named with high confidence or certainty.
    Wrong,
    /// The limit is left open: the correct limit is among at most three candidates, and a test is
    /// given.
    Open,
    /// The limit is left open, but the correct limit is not among the candidates, there are too many
    /// candidates, no test is given, or the answer is only a guess.
    Misses,
    /// The input is refused.
    None,
}

/// Answer to one input of one run.
#[derive(Clone, Debug)]
pub struct Graded {
    /// Situation of the run.
    pub situation: String,
    /// Label of the run.
    pub label: String,
    /// Limit of the run.
    pub truth: Limit,
    /// Kind of the input.
    pub kind: InputKind,
    /// Answer of this build.
    pub answer: Answer,
    /// Answer of the older build, if there is one to compare with.
    pub before: Option<Answer>,
}

impl Graded {
    fn grade(&self) -> Grade {
        self.answer.grade(self.truth)
    }

    /// Returns the grade of the older build's answer. That build calls every rate cap a policer.
    fn grade_before(&self) -> Option<Grade> {
        let policed = |limit: Limit| (self.truth, limit) == (Limit::Cap, Limit::Policer);
        self.before.as_ref().map(|before| match before {
            Answer::Decided(limit, _) if policed(*limit) => Grade::Right,
            before => before.grade(self.truth),
        })
    }
}

fn count<'a>(graded: impl Iterator<Item = &'a Graded>, grade: Grade) -> usize {
    graded.filter(|one| one.grade() == grade).count()
}

fn of_kind(graded: &[Graded], kind: InputKind) -> impl Iterator<Item = &Graded> + Clone {
    graded.iter().filter(move |one| one.kind == kind)
}

/// Returns whether the answers meet the requirements: enough decided answers are correct, every undecided
/// answer lists the true limit among its candidates, and for each kind of input at least as many answers are
/// decided correctly as by the older build.
pub fn holds(graded: &[Graded]) -> bool {
    let (right, wrong) = (count(graded.iter(), Grade::Right), count(graded.iter(), Grade::Wrong));
    let kinds = InputKind::ALL.into_iter().all(|kind| {
        let of = of_kind(graded, kind);
        let before = of.clone().filter(|one| one.grade_before() == Some(Grade::Right)).count();
        count(of, Grade::Right) >= before
    });
    right > 0
        && right as f64 >= RIGHT * (right + wrong) as f64
        && count(graded.iter(), Grade::Misses) == 0
        && kinds
}

/// Returns the answers as Markdown tables: by kind of input and by situation, followed by a list of
/// the bad answers.
pub fn tables(graded: &[Graded], before: Option<&str>) -> String {
    let mut text = String::from(
        "| input | runs | decided, correct | decided, wrong | not decided, good | not decided, bad | refused |",
    );
    let older = before.map(|name| format!(" {name}: decided, correct | {name}: decided, wrong |"));
    text += older.as_deref().unwrap_or_default();
    text += "\n|---|---|---|---|---|---|---|";
    text += if before.is_some() { "---|---|\n" } else { "\n" };
    let mut line = |name: String, of: Vec<&Graded>| {
        let grades = [Grade::Right, Grade::Wrong, Grade::Open, Grade::Misses, Grade::None];
        let counts = grades.map(|grade| count(of.iter().copied(), grade).to_string()).join(" | ");
        let older = |grade| of.iter().filter(|one| one.grade_before() == Some(grade)).count();
        let older = before.map(|_| format!(" {} | {} |", older(Grade::Right), older(Grade::Wrong)));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {name} | {} | {counts} |{}", of.len(), older.unwrap_or_default());
    };
    for kind in InputKind::ALL {
        line(kind.to_string(), of_kind(graded, kind).collect());
    }
    line("all".into(), graded.iter().collect());
    text += &by_situation(graded);
    let (right, wrong) = (count(graded.iter(), Grade::Right), count(graded.iter(), Grade::Wrong));
    let share = 100.0 * right as f64 / (right + wrong).max(1) as f64;
    let _ = writeln!(
        text,
        "\nOf the decided diagnoses, {right} of {} are correct ({share:.1} %; target {:.0} %).",
        right + wrong,
        100.0 * RIGHT
    );
    text + &exceptions(graded)
}

fn by_situation(graded: &[Graded]) -> String {
    let mut text = String::from(
        "\nDecided correctly / not decided, good / all other diagnoses:\n\n| situation | runs |",
    );
    for kind in InputKind::ALL {
        let _ = write!(text, " {kind} |");
    }
    text += "\n|---|---|---|---|---|---|---|\n";
    let mut situations: Vec<&str> = Vec::new();
    for one in graded.iter().filter(|one| one.kind == InputKind::Rows) {
        if !situations.contains(&one.situation.as_str()) {
            situations.push(&one.situation);
        }
    }
    for situation in situations {
        let of = |kind| of_kind(graded, kind).filter(move |one| one.situation == situation);
        let _ = write!(text, "| {situation} | {} |", of(InputKind::Rows).count());
        for kind in InputKind::ALL {
            let (right, open) = (count(of(kind), Grade::Right), count(of(kind), Grade::Open));
            let _ = write!(text, " {right} / {open} / {} |", of(kind).count() - right - open);
        }
        text.push('\n');
    }
    text
}

/// Returns a line for each answer that is wrong, lacks the true limit, or is missing.
fn exceptions(graded: &[Graded]) -> String {
    let mut text = String::new();
    for one in graded.iter().filter(|one| !matches!(one.grade(), Grade::Right | Grade::Open)) {
        if text.is_empty() {
            text += "\nAnswers that are wrong, that do not have the limit among their candidates, or that are missing:\n\n";
        }
        let _ = writeln!(text, "- {} of `{}`: {}", one.kind, one.label, one.answer);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graded(truth: Limit, answer: Answer, before: Option<Answer>) -> Graded {
        let (situation, label) = ("s".to_owned(), "s; drawn 1".to_owned());
        Graded { situation, label, truth, kind: InputKind::Text, answer, before }
    }

    fn high(limit: Limit) -> Answer {
        Answer::Decided(limit, Confidence::High)
    }

    #[test]
    fn an_open_question_is_good_if_it_contains_the_limit() {
        let open = |candidates: &[&[Limit]], test: &str| {
            let candidates = candidates.iter().map(|one| one.to_vec()).collect();
            Answer::Undecided(candidates, test.into()).grade(Limit::Pacing)
        };
        assert_eq!(open(&[&[Limit::Rwnd], &[Limit::App, Limit::Pacing]], "ss"), Grade::Open);
        assert_eq!(open(&[&[Limit::Rwnd], &[Limit::App]], "ss"), Grade::Misses);
        assert_eq!(open(&[&[Limit::Rwnd], &[Limit::Pacing]], ""), Grade::Misses);
        let four: [&[Limit]; 4] = [&[Limit::Rwnd], &[Limit::Pacing], &[Limit::Cap], &[Limit::Link]];
        assert_eq!(open(&four, "ss"), Grade::Misses);
        assert_eq!(Answer::Guess(Limit::Pacing).grade(Limit::Pacing), Grade::Misses);
        assert_eq!(high(Limit::Cap).grade(Limit::Policer), Grade::Right);
        assert_eq!(high(Limit::Policer).grade(Limit::Cap), Grade::Wrong);
    }

    #[test]
    fn documents_of_older_builds_are_read() {
        let document = serde_json::json!({"findings": [{"limit": "policer", "confidence": "high"}]});
        assert_eq!(Answer::of_document(&document), high(Limit::Policer));
        assert_eq!(Answer::of_document(&Value::Null), Answer::None("no finding".into()));
        // The older build has one name for every cap.
        let one = graded(Limit::Cap, high(Limit::Cap), Some(high(Limit::Policer)));
        assert_eq!((one.grade(), one.grade_before()), (Grade::Right, Some(Grade::Right)));
    }

    #[test]
    fn the_answers_hold_if_98_of_100_are_right_and_no_fewer_are_decided_than_before() {
        let of = |right: usize, wrong: usize| {
            let right = vec![graded(Limit::Rwnd, high(Limit::Rwnd), None); right];
            [right, vec![graded(Limit::Rwnd, high(Limit::App), None); wrong]].concat()
        };
        assert!(holds(&of(98, 2)) && !holds(&of(97, 3)) && !holds(&of(0, 0)));
        let guess = graded(Limit::Rwnd, Answer::Guess(Limit::Rwnd), None);
        assert!(!holds(&[of(98, 0), vec![guess]].concat()));
        let open = Answer::Undecided(vec![vec![Limit::Rwnd]], "test".into());
        let fewer = graded(Limit::Rwnd, open.clone(), Some(high(Limit::Rwnd)));
        assert!(!holds(&[of(1, 0), vec![fewer; 2]].concat()));
        let text = tables(&of(2, 1), None);
        assert!(text.contains("| iperf3 text | 3 | 2 | 1 | 0 | 0 | 0 |\n"), "{text}");
        assert!(text.contains("2 of 3 are correct (66.7 %; target 98 %)"), "{text}");
        assert!(text.ends_with("- iperf3 text of `s; drawn 1`: app, high confidence\n"), "{text}");
        let text = tables(&[graded(Limit::Rwnd, open, Some(high(Limit::App)))], Some("831e595"));
        assert!(text.contains("| iperf3 text | 1 | 0 | 0 | 1 | 0 | 0 | 0 | 1 |\n"), "{text}");
    }
}
