use std::error::Error;

/// The causes of an error in one line, outermost first. If an error's text repeats its cause, the cause appears once.
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fmt, io};

    #[derive(Debug)]
    struct Outer(&'static str, io::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.1)
        }
    }

    #[test]
    fn each_cause_is_printed_once() {
        let of = |text| causes(&Outer(text, io::Error::other("refused")));
        assert_eq!(of("cannot connect"), "cannot connect: refused");
        assert_eq!(of("cannot connect: refused"), "cannot connect: refused");
    }
}
