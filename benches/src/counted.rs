//! The counts of `scripts/counts`, as a page shows them.

/// The instructions and read-modify-writes per unit of each case that was counted.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Counts(Vec<(String, String)>);

const BEGIN: &str = "<!-- counted: begin -->";
const END: &str = "<!-- counted: end -->";

impl Counts {
    /// Reads the table between the two marks of a page. A page without marks has no counts.
    pub fn of_page(page: &str) -> Self {
        let table = page.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
        Counts(
            table
                .map_or("", |(table, _)| table)
                .lines()
                .filter_map(|line| {
                    let mut cells = line.strip_prefix("| `")?.split(" | ");
                    let case = cells.next()?.strip_suffix('`')?;
                    let (_unit, instructions, writes) = (cells.next()?, cells.next()?, cells.next()?);
                    Some((case.to_owned(), format!("{instructions}; {writes}")))
                })
                .collect(),
        )
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the counts of a case, as the cell of a table.
    pub fn of(&self, case: &str) -> &str {
        let mut counts = self.0.iter().filter(|(name, _)| name == case);
        counts.next().map_or("", |(_, counts)| counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_a_page_is_read() {
        let page = format!(
            "text\n{BEGIN}\n\n| case | per | instructions | read-modify-writes | allocations |\n|---|---|---|---|---|\n\
             | `hop/inside` | hop | 280 | 0.00 | 0.00 |\n| `join/fib` | node | 51 | 0.50 | 0.00 |\n\n{END}\n| `other` | a | 1 | 2 | 3 |\n"
        );
        let counts = Counts::of_page(&page);
        assert_eq!(counts.of("hop/inside"), "280; 0.00");
        assert_eq!(counts.of("join/fib"), "51; 0.50");
        assert_eq!(counts.of("other"), "");
    }

    #[test]
    fn a_page_without_marks_has_no_counts() {
        assert!(Counts::of_page("| `hop/inside` | hop | 280 | 0.00 | 0.00 |").is_empty());
    }
}
