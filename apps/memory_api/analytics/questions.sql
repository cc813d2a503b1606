-- name: bullets
-- Which bullets does a playbook contain now, how are they judged, and how often were they served, up to a few minutes ago?
select playbook, key, section, status, pinned, content, helpful, harmful, neutral, usefulness, served_count, last_served_at, created_at, created_by,
       created_reason, created_run_id
from questions.bullets(:tenant, '-infinity', 'infinity', :project, :playbook)
where project_id = :project
  and playbook = :playbook -- if playbook
  and section = :section -- if section
order by playbook, key
limit :limit

-- name: bullet_versions
-- What changed in each bullet, when, by whom, why, and from which run?
select playbook, key, revision, changed_at, change_type, merged_into, status, section, changed_by, reason, run_id, run_kind, trace_id, content
from questions.bullet_versions(:tenant, :since, :until, :project, :playbook)
where project_id = :project
  and playbook = :playbook -- if playbook
  and section = :section -- if section
  and key = :key -- if key
order by changed_at desc, key, revision desc
limit :limit

-- name: playbook_sizes
-- How many active bullets did a playbook have at the end of each day?
select playbook, day, active_count, version, version_count, added_count, updated_count, removed_count
from questions.playbook_sizes(:tenant, :since, :until, :project, :playbook)
where project_id = :project
  and playbook = :playbook -- if playbook
order by playbook, day
limit :limit

-- name: churn
-- How many bullets were created, changed, merged, quarantined, released, archived, deleted and restored each day?
select playbook, day, section, created_count, changed_count, merged_count, quarantined_count, released_count, archived_count, deleted_count,
       restored_count
from questions.churn(:tenant, :since, :until, :project, :playbook)
where project_id = :project
  and playbook = :playbook -- if playbook
  and section = :section -- if section
order by playbook, day, section
limit :limit

-- name: survival
-- How long do bullets stay in use, and how long until the first helpful verdict?
select playbook, event, day, at_risk_count, event_count, survival
from questions.survival(:tenant, '-infinity', 'infinity', :project, :playbook)
where project_id = :project
  and playbook = :playbook -- if playbook
order by playbook, event desc, day
limit :limit

-- name: verdicts
-- How many helpful, harmful and neutral verdicts did each judge and model give each day?
select playbook, day, section, judge, model, helpful_count, harmful_count, neutral_count
from questions.verdicts(:tenant, :since, :until, :project, :playbook)
where project_id = :project
  and playbook = :playbook -- if playbook
  and section = :section -- if section
order by playbook, day, section, judge, model
limit :limit

-- name: movers
-- Which bullets gained the most helpful or harmful verdicts in the period? The most harmful first.
select playbook, key, section, status, helpful_count, harmful_count, neutral_count, net_count, helpful_rate, low, high, content
from questions.movers(:tenant, :since, :until, :project, :playbook)
where project_id = :project
  and playbook = :playbook -- if playbook
  and section = :section -- if section
order by net_count, harmful_count desc, key
limit :limit

-- name: verdict_drift
-- Which bullets became less or more helpful than in the period before?
select playbook, key, section, status, earlier_count, earlier_rate, recent_count, recent_rate, difference, low, high, is_significant, content
from questions.verdict_drift(:tenant, :since, :until, :project, :playbook)
where project_id = :project
  and playbook = :playbook -- if playbook
  and section = :section -- if section
order by high, key
limit :limit

-- name: funnel
-- How many traces, reflections, lessons and bullets were there each day, and how many bullets were served, cited and judged?
select playbook, day, stage_number, stage, count
from questions.funnel(:tenant, :since, :until, :project, :playbook)
where project_id = :project
  and playbook = :playbook -- if playbook
order by playbook, day, stage_number
limit :limit

-- name: effects
-- How did agent runs end with each bullet and without it?
select playbook, key, section, status, basis, with_runs, with_successes, with_rate, with_low, with_high, without_runs, without_successes,
       without_rate, without_low, without_high, difference, low, high, always_with, content
from questions.effects(:tenant, :since, :until, :project, :playbook)
where project_id = :project
  and playbook = :playbook -- if playbook
  and section = :section -- if section
order by high nulls last, key, basis
limit :limit

-- name: improvement
-- Do agents get better: how many agent runs succeeded each week, with advice and without it?
select playbook, week, runs, successes, rate, rate_low, rate_high, with_runs, with_successes, with_rate, without_runs, without_successes,
       without_rate, difference, low, high
from questions.improvement(:tenant, :since, :until, :project, :playbook)
where project_id = :project
  and playbook = :playbook -- if playbook
order by playbook nulls first, week nulls first
limit :limit

-- name: coverage
-- How well did the best bullet match each query?
select playbook, day, retrieval_count, strong_count, weak_count, unmatched_count, median_best_score
from questions.coverage(:tenant, :since, :until, :project, :playbook)
where project_id = :project
  and playbook = :playbook -- if playbook
order by playbook, day
limit :limit

-- name: uncovered_queries
-- Which queries found no bullet that matches?
select playbook, created_at, kind, query, best_score, bullet_count, retrieval_id
from questions.uncovered_queries(:tenant, :since, :until, :project, :playbook)
where project_id = :project
  and playbook = :playbook -- if playbook
order by created_at desc, retrieval_id
limit :limit

-- name: near_duplicates
-- Which active bullets say nearly the same?
select playbook, key, other_key, section, other_section, cosine, content, other_content
from questions.near_duplicates(:tenant, '-infinity', 'infinity', :project, :playbook)
where project_id = :project
  and playbook = :playbook -- if playbook
  and section = :section -- if section
order by cosine desc, key, other_key
limit :limit

-- name: contradictions
-- Which bullets did the curator find to contradict each other?
select playbook, key, other_key, status, other_status, content, other_content, found_at
from questions.contradictions(:tenant, '-infinity', 'infinity', :project, :playbook)
where project_id = :project
  and playbook = :playbook -- if playbook
order by found_at desc, key, other_key
limit :limit

-- name: conflicts
-- In which traces does a check that the client declared contradict the outcome that it reported?
select playbook, trace_id, created_at, task_key, reported_outcome, check_outcome, reason
from questions.conflicts(:tenant, :since, :until, :project, :playbook)
where project_id = :project
  and playbook = :playbook -- if playbook
order by created_at, trace_id
limit :limit

-- name: costs
-- What did model calls cost each day, by playbook, purpose and model?
select playbook, day, purpose, provider, model, call_count, failed_count, unpriced_count, input_tokens, output_tokens, cost_usd
from questions.costs(:tenant, :since, :until, :project, :playbook)
where project_id = :project
  and playbook = :playbook -- if playbook
order by playbook, day, purpose, model
limit :limit

-- name: unit_costs
-- What did a playbook cost so far, by trace, lesson and bullet in use?
select playbook, cost_usd, trace_count, lesson_count, bullet_count, usd_per_trace, usd_per_lesson, usd_per_bullet
from questions.unit_costs(:tenant, '-infinity', 'infinity', :project, :playbook)
where project_id = :project
  and playbook = :playbook -- if playbook
order by playbook
limit :limit

-- name: agent_runs
-- How sure were the runs of GRACE each day, how did they end, and were their answers right?
select playbook, day, confidence_band, state, run_count, right_count, wrong_count, mean_confidence, question_count, replan_count, mean_seconds,
       token_count, cost_usd
from questions.agent_runs(:tenant, :since, :until, :project, :playbook)
where project_id = :project
  and playbook = :playbook -- if playbook
order by day, playbook, confidence_band, state
limit :limit

-- name: error_categories
-- Which categories of errors did reflections find each day?
select playbook, day, error_category, reflection_count, failed_count
from questions.error_categories(:tenant, :since, :until, :project, :playbook)
where project_id = :project
  and playbook = :playbook -- if playbook
order by playbook, day, error_category
limit :limit
