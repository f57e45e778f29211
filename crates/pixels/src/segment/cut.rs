//! The minimum cut of a graph with two ends, by Dinic's algorithm on whole numbers.

/// A graph between two ends, inside and outside.
pub(super) struct Cut {
    count: usize,
    arcs: Vec<Vec<usize>>,
    to: Vec<usize>,
    room: Vec<i64>,
}

impl Cut {
    /// A graph of so many nodes without arcs.
    pub(super) fn new(count: usize) -> Self {
        Self { count, arcs: vec![Vec::new(); count + 2], to: Vec::new(), room: Vec::new() }
    }

    /// Pulls a node outside, or inside where `force` is negative.
    pub(super) fn lean(&mut self, node: usize, force: f32) {
        let (inside, outside) = (self.count, self.count + 1);
        match force < 0.0 {
            true => self.arc(inside, node, whole(-force), 0),
            false => self.arc(node, outside, whole(force), 0),
        }
    }

    /// What it costs to separate two nodes.
    pub(super) fn join(&mut self, [a, b]: [usize; 2], cost: f32) {
        self.arc(a, b, whole(cost), whole(cost));
    }

    fn arc(&mut self, a: usize, b: usize, there: i64, back: i64) {
        for (from, to, room) in [(a, b, there), (b, a, back)] {
            self.arcs[from].push(self.to.len());
            self.to.push(to);
            self.room.push(room);
        }
    }

    /// For every node, whether it is on the inside of the minimum cut.
    pub(super) fn minimum(mut self) -> Vec<bool> {
        loop {
            let level = self.levels();
            if level[self.count + 1] == usize::MAX {
                return level.iter().take(self.count).map(|level| *level != usize::MAX).collect();
            }
            self.saturate(&level);
        }
    }

    /// The distance of every node from the inside end, through arcs with room.
    fn levels(&self) -> Vec<usize> {
        let mut level = vec![usize::MAX; self.count + 2];
        level[self.count] = 0;
        let (mut queue, mut next) = (vec![self.count], 0);
        while let Some(node) = queue.get(next).copied() {
            next += 1;
            for arc in &self.arcs[node] {
                let to = self.to[*arc];
                if self.room[*arc] > 0 && level[to] == usize::MAX {
                    level[to] = level[node] + 1;
                    queue.push(to);
                }
            }
        }
        level
    }

    /// Sends what fits along shortest paths.
    fn saturate(&mut self, level: &[usize]) {
        let (inside, outside) = (self.count, self.count + 1);
        let mut tried = vec![0; self.count + 2];
        let mut path: Vec<usize> = Vec::new();
        loop {
            let node = path.last().map_or(inside, |arc| self.to[*arc]);
            if node == outside {
                let least = path.iter().map(|arc| self.room[*arc]).min().unwrap_or(0);
                for arc in &path {
                    self.room[*arc] -= least;
                    self.room[*arc ^ 1] += least;
                }
                let full = path.iter().position(|arc| self.room[*arc] == 0).unwrap_or(0);
                path.truncate(full);
                continue;
            }
            match self.arcs[node].get(tried[node]).copied() {
                Some(arc) if self.room[arc] > 0 && level[self.to[arc]] == level[node].wrapping_add(1) => {
                    path.push(arc);
                }
                Some(_) => tried[node] += 1,
                None => match path.pop() {
                    Some(arc) => tried[self.to[arc ^ 1]] += 1,
                    None => return,
                },
            }
        }
    }
}

fn whole(cost: f32) -> i64 {
    (cost * 256.0) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cut_goes_where_it_costs_least() {
        let mut cut = Cut::new(4);
        cut.lean(0, -100.0);
        cut.lean(3, 100.0);
        for (nodes, cost) in [([0, 1], 5.0), ([1, 2], 1.0), ([2, 3], 3.0), ([0, 2], 1.0)] {
            cut.join(nodes, cost);
        }
        assert_eq!(cut.minimum(), [true, true, false, false]);
    }

    #[test]
    fn a_strong_lean_wins_against_its_neighbours() {
        let with = |force| {
            let mut cut = Cut::new(3);
            cut.lean(0, -10.0);
            cut.lean(1, force);
            cut.lean(2, -10.0);
            cut.join([0, 1], 2.0);
            cut.join([1, 2], 2.0);
            cut.minimum()
        };
        assert_eq!(with(3.0), [true, true, true]);
        assert_eq!(with(5.0), [true, false, true]);
    }
}
