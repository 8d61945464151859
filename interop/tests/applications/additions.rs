//! Our lines and their places: a unified diff without context.

/// The changes to one file.
#[derive(Debug)]
pub(crate) struct Additions {
    pub(crate) file: String,
    hunks: Vec<Hunk>,
}

#[derive(Debug)]
struct Hunk {
    /// The number of the file's lines before it.
    after: usize,
    removed: Vec<String>,
    added: Vec<String>,
}

impl Additions {
    /// Reads a diff. Text before its first file is a comment.
    pub(crate) fn parse(diff: &str) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for line in diff.lines() {
            if let Some(file) = line.strip_prefix("--- ") {
                all.push(Self { file: file.to_owned(), hunks: Vec::new() });
                continue;
            }
            let Some(Self { hunks, .. }) = all.last_mut() else { continue };
            if line.starts_with("+++ ") {
                continue;
            }
            if let Some(place) = line.strip_prefix("@@ -") {
                let old = place.split(' ').next().unwrap();
                let (first, count) = old.split_once(',').unwrap_or((old, "1"));
                let (first, count): (usize, usize) =
                    (first.parse().unwrap(), count.parse().unwrap());
                let after = if count == 0 { first } else { first - 1 };
                hunks.push(Hunk { after, removed: Vec::new(), added: Vec::new() });
                continue;
            }
            let hunk = hunks.last_mut().unwrap();
            match line.split_at(1) {
                ("-", removed) => hunk.removed.push(removed.to_owned()),
                ("+", added) => hunk.added.push(added.to_owned()),
                _ => panic!("a diff without context has no line such as `{line}`"),
            }
        }
        all
    }

    /// The number of removed lines.
    pub(crate) fn removed(&self) -> usize {
        self.hunks.iter().map(|hunk| hunk.removed.len()).sum()
    }

    /// The number of added lines.
    pub(crate) fn added(&self) -> usize {
        self.hunks.iter().map(|hunk| hunk.added.len()).sum()
    }

    /// The file with our lines in it.
    pub(crate) fn apply(&self, original: &str) -> String {
        let mut lines: Vec<&str> = original.lines().collect();
        // From the end, so that the line numbers of earlier hunks stay valid.
        for Hunk { after, removed, added } in self.hunks.iter().rev() {
            let place = *after..after + removed.len();
            let gone: Vec<_> = lines.splice(place, added.iter().map(String::as_str)).collect();
            assert_eq!(gone, *removed, "{}, after line {after}", self.file);
        }
        lines.join("\n") + "\n"
    }
}
