//! The table of rules. Each row has a sentence that it must reject and a near miss that it must accept.

use super::{
    names::words_of_name,
    passage::Kind,
    rule::{Check, Rule},
    sentence::Sentence,
};

/// The most words of a sentence.
const LONGEST: usize = 25;

/// All rules, in the order of `docs/style.md`.
pub(crate) const RULES: &[Rule] = &[
    Rule {
        name: "subject",
        check: Check::Is(has_no_subject),
        hint: "open with the noun that the sentence is about (\"Number of …\", \"True if …\")",
        rejects: &[
            "Who holds the Lease.",
            "What the kernel still has.",
            "Whether the pod is static.",
            "Which ENI has it, if any.",
            "Whose.",
            "How many addresses are free.",
            "Why the object cannot be used.",
            "Where reports go.",
            "One that waits.",
            "Those that wait start again.",
            "It counts the free addresses.",
            "The pool is full. Whoever asks then gets an error.",
        ],
        accepts: &[
            "A replica that is behind ends the stream.",
            "The pool is full. It does not grow.",
            "Where a node has two ENIs, the second has a table.",
            "One address of the block.",
            "Wholly understood rules only.",
            "What happens to a pod's first packet?",
        ],
    },
    Rule {
        name: "says",
        check: Check::Words {
            pattern: r"(?i)\b(say|says|said|saying|unsaid)\b",
            except: Some(
                r"(?i)\b(specification|spec|manual|RFC|AWS|author|reviewer|user|operator|person|people)s? (say|says|said)\b",
            ),
        },
        hint: "a program reports, sends, logs or shows; a field states or contains",
        rejects: &["The agent says that the pod is ready.", "A pod as the plugin has said it."],
        accepts: &[
            "The specification says that a DEL may repeat.",
            "The operator essay is in the guide.",
        ],
    },
    Rule {
        name: "told",
        check: Check::Words {
            pattern: r"(?i)\b(tell|tells|told|telling|untold|retold)\b",
            except: None,
        },
        hint: "report, send, receive, show, log; \"tell apart\" is \"distinguish\"",
        rejects: &["Each replica is told of the pod.", "The log tells which ENI failed."],
        accepts: &["The teller count is a metric.", "Each replica receives the announcement."],
    },
    Rule {
        name: "old verb",
        check: Check::Words {
            pattern: concat!(
                r"(?i)\b(mend(s|ed|ing)?|(take|takes|took|taken|taking) note|(come|comes|came|coming) to rest",
                r"|(made|make|makes|making|comes?|begins?|compared|compiled) anew",
                r"|(stand|stands|stood|lie|lies|lay) (in|at|on|beside|behind|below|under|there|here|before|open|still|where|so)",
                r"|(become|becomes|became|come|comes|came) of|(go|goes|went|going) on",
                r"|(begin|begins|began|begun)|(bring|brings|brought) (in|along)|is borne)\b",
            ),
            except: Some(r"(?i)\bstands? for\b"),
        },
        hint: "fix, acknowledge, converge, recreate, be in, result, continue, start, contain",
        rejects: &[
            "The daemon mends the rule.",
            "The policy agent did not take note of the pod.",
            "The node comes to rest.",
            "The group is made anew.",
            "The route stands in table 2.",
            "The file lies in the folder.",
            "The result of what came of it.",
            "The agent begins with it.",
        ],
        accepts: &[
            "The address belongs to the recommended range.",
            "The stub stands for the kernel.",
            "The beginning of the file is a header.",
            "The node converges and rests.",
        ],
    },
    Rule {
        name: "negated subject",
        check: Check::Words {
            pattern: r"\b([Nn]obody|[Nn]o one|[Nn]o-one)\b|^Nothing\b|[.:;,] nothing (is|was|has|can|may|of)\b",
            except: None,
        },
        hint: "negate the verb: \"X does not answer\"",
        rejects: &[
            "Nobody answers.",
            "The address is given to no one.",
            "Nothing of it is in force.",
        ],
        accepts: &["The replica does not answer.", "A backend that does nothing is `none`."],
    },
    Rule {
        name: "archaic",
        check: Check::Words {
            pattern: concat!(
                r"(?i)\b(anew|beneath|for ever|in (its|their|his|her) stead|in the stead|no more|any more",
                r"|whoever|whomever|whosoever|nevertheless|at the utmost|in vain|hitherto|lest|thereof|whereof",
                r"|all the same|for want of|but for|by the side|ere|afresh|so to speak)\b",
            ),
            except: Some(r"(?i)\b(no|any) more than\b"),
        },
        hint: "again, below, forever, instead, no longer, except, anyway, at most",
        rejects: &[
            "The list is read anew.",
            "The crate beneath it.",
            "The chain stays for ever.",
            "The daemon puts another in its stead.",
            "The pod is no more.",
            "The setting applies to whoever calls.",
            "All packets but for multicast.",
        ],
        accepts: &[
            "The pool holds no more than 16 addresses.",
            "The instead branch is below.",
            "The forever loop ends.",
        ],
    },
    Rule {
        name: "relative without noun",
        check: Check::Words {
            pattern: r"(?i)\b(for|of|to|by|from|with|beside|than|as|is|be|are) who\b|\b(who|which) (is|are) (is|are)\b|\bwhat there is\b",
            except: None,
        },
        hint: "name the person or the component",
        rejects: &["The role is for who asks.", "The cluster shows what there is."],
        accepts: &["The role is for a user who runs it.", "The list of those components is short."],
    },
    Rule {
        name: "length",
        check: Check::Is(|sentence| {
            sentence.passage.kind != Kind::Message && sentence.words() > LONGEST
        }),
        hint: "at most 25 words: one fact per sentence, the condition after the main clause",
        rejects: &[
            "The daemon observes the kernel and then it takes the book and plans and applies the plan and \
             then it reports to the book the objects that the kernel did not have.",
        ],
        accepts: &[
            "The daemon observes the kernel (`RTM_GETLINK` and `RTM_GETROUTE` with the flags `A | B | C | D | E | F | G`), \
             then it takes the book, plans, and applies the plan at once.",
        ],
    },
    Rule {
        name: "repeats",
        check: Check::Is(repeats),
        hint: "add the unit, owner, invariant or meaning of None, or delete the comment",
        rejects: &["Its name.", "Why.", "The name.", "This one.", "Its own."],
        accepts: &["Milliseconds.", "Sorted.", "Unique per node."],
    },
    Rule {
        name: "personification",
        check: Check::Words {
            pattern: concat!(
                r"(?i)\b(deaf|heedless|bury|buries|buried|stranger|strangers|hear|hears|heard|unheard",
                r"|believe|believes|believed|wish|wishes|wished|whisper|whispers|knocks|patience|ill|blindly",
                r"|hands of|at a loss|in good faith|knows nothing|its word|their word|send word|word of)\b",
            ),
            except: None,
        },
        hint: "name the mechanism: the component, the call, the limit, the timeout",
        rejects: &[
            "The host veth is deaf to router announcements.",
            "A stranger can cause it.",
            "The UID was never heard of.",
            "The hub believes neither.",
            "The patience doubles.",
        ],
        accepts: &[
            "The host veth ignores router advertisements.",
            "The word count is a metric.",
            "The illegal value is refused.",
        ],
    },
    Rule {
        name: "genitive",
        check: Check::Words {
            pattern: r"\bof (the |a |an |its )?[\w-]+['’]s([,.;:)]|$)",
            except: None,
        },
        hint: "no double genitive: \"a setting of the kubelet\"",
        rejects: &["It is a setting of kubelet's.", "A bit of the daemon's, and a mark."],
        accepts: &["The size of the pod's table.", "The rules of amazon-vpc-cni."],
    },
    Rule {
        name: "spelling",
        check: Check::Words {
            pattern: concat!(
                r"(?i)\b(neighbour\w*|colour\w*|behaviour\w*|honour\w*|favour\w*|flavour\w*|licences?|licenced|defence|offence",
                r"|(un|re|mis)?label(led|ling)|cancel(led|ling)|model(led|ling)|signal(led|ling)|travel(led|ling|ler)",
                r"|level(led|ling)|channel(led|ling)|tunnel(led|ling)|total(led|ling)|fuel(led|ling)|dial(led|ling)",
                r"|centre[sd]?|analys(e|ed|es|ing)|grey|judgements?|programmes?|artefacts?|fulfil|learnt|spelt|misspelt|burnt",
                r"|whilst|amongst|catalogues?",
                r"|(un|re|de|mis)?(optim|organ|recogn|normal|initial|serial|synchron|minim|maxim|author|summar|real|util|special",
                r"|general|priorit|standard|custom|random|final|capital|categor|character|memor|visual|parallel|token|canonical",
                r"|apolog|critic|emphas|virtual|container|finger|central|local|global|stabil|neutral|penal|monopol|vector|amort",
                r"|quant|equal|materi|materal|sanit|harmon|modern|scrutin|sympath|pressur|item|factor|linear|polar|crystall)",
                r"is(e|es|ed|er|ers|ing|ation|ations|able))\b",
            ),
            except: None,
        },
        hint: "American spelling: neighbor, color, behavior, labeled, canceled, license, -ize",
        rejects: &[
            "A permanent neighbour entry.",
            "The pod is relabelled.",
            "The default behaviour.",
            "The call is cancelled.",
            "An optimised build.",
            "A licence of Apache.",
            "Normalisation of names.",
        ],
        accepts: &[
            "A permanent neighbor entry.",
            "The precise exercise comprises a promise.",
            "The value is labeled and canceled.",
            "The realistic analysis emphasizes the license.",
        ],
    },
];

fn has_no_subject(sentence: &Sentence<'_>) -> bool {
    let text = sentence.masked.trim_start_matches(['"', '(', '*', '“', '\'']);
    if sentence.passage.kind == Kind::HeaderCell || text.ends_with('?') {
        return false;
    }
    let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '\'');
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    match first {
        "What" | "Whatever" | "Who" | "Whoever" | "Whom" | "Whomever" | "Whose" | "Which"
        | "Whichever" | "Whether" | "How" | "Why" => true,
        "Where" => sentence.opens_doc() && !text.contains(','),
        "One" => matches!(second, "that" | "who" | "which" | "whose" | "for" | "with" | "more"),
        "Those" => matches!(second, "that" | "who" | "which" | "whose" | "of" | "with"),
        "It" => sentence.opens_passage() || matches!(second, "says" | "tells"),
        _ => false,
    }
}

/// Returns true for a doc comment that adds no word to the name of its item.
fn repeats(sentence: &Sentence<'_>) -> bool {
    const EMPTY: [&str; 32] = [
        "a", "an", "the", "its", "it", "of", "this", "that", "their", "his", "own", "one", "ones",
        "such", "what", "who", "whose", "which", "why", "how", "where", "when", "many", "much",
        "by", "for", "and", "all", "name", "names", "kind", "former",
    ];
    let is_whole = sentence.text.len() == sentence.passage.text.trim().len();
    if !(sentence.opens_doc() && is_whole) || sentence.words() > 4 {
        return false;
    }
    let item = sentence.passage.item.as_deref().map(words_of_name).unwrap_or_default();
    let is_known = |word: &str| {
        let singular = word.strip_suffix('s').unwrap_or(word);
        EMPTY.contains(&word) || item.iter().any(|part| part == word || part == singular)
    };
    let text = sentence.masked.to_lowercase();
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '\u{25a1}');
    words.filter(|word| !word.is_empty()).all(is_known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prose::{
        passage::{Markdown, passages},
        rule::Compiled,
        sentence::sentences,
    };

    fn is_rejected(rule: &'static Rule, text: &str, item: Option<&str>) -> bool {
        let rule = Compiled::new(rule).expect("a rule of the table");
        let markdown = Markdown { text, lines: &[1], first: Kind::Doc, item };
        let passages = passages(&markdown);
        passages.iter().flat_map(sentences).any(|sentence| rule.rejects(&sentence))
    }

    #[test]
    fn every_rule_rejects_and_accepts_its_examples() {
        for rule in RULES {
            assert!(!rule.rejects.is_empty() && !rule.accepts.is_empty(), "{}", rule.name);
            for text in rule.rejects {
                assert!(is_rejected(rule, text, None), "{} must reject {text:?}", rule.name);
            }
            for text in rule.accepts {
                assert!(!is_rejected(rule, text, None), "{} must accept {text:?}", rule.name);
            }
        }
    }

    #[test]
    fn a_near_miss_is_accepted_by_every_rule_that_it_is_not_about() {
        let good =
            ["A replica that is behind ends the stream.", "The daemon deletes the whole group."];
        for (rule, text) in RULES.iter().flat_map(|rule| good.map(|text| (rule, text))) {
            assert!(!is_rejected(rule, text, None), "{} must accept {text:?}", rule.name);
        }
    }

    #[test]
    fn a_doc_comment_that_repeats_the_name_of_its_item_is_rejected() {
        let rule = RULES.iter().find(|rule| rule.name == "repeats").expect("the rule");
        assert!(is_rejected(rule, "The pod key.", Some("PodKey")));
        assert!(is_rejected(rule, "Its addresses.", Some("addresses")));
        assert!(!is_rejected(rule, "The pod key.", Some("container")));
        assert!(!is_rejected(rule, "Seconds.", Some("wait")));
    }
}
