-- name: bullets
select key, section, status, helpful, harmful, served_count
from analytics.bullets
where playbook = 'support' order by harmful desc, key limit 3

-- name: bullet_versions
select changed_at, change_type, merged_into, changed_by, reason, run_kind
from analytics.bullet_versions
where key = 'mis-00014' order by changed_at

-- name: playbook_sizes
select day, active_count, version, version_count
from analytics.playbook_sizes
where playbook = 'support' and day between '2025-07-01' and '2025-07-04'

-- name: churn
select day, section, created_count, changed_count, quarantined_count, deleted_count
from analytics.churn
where playbook = 'support' and day between '2025-07-25' and '2025-07-26' order by day, section

-- name: survival
select event, day, at_risk_count, event_count, survival
from analytics.survival
where playbook = 'support' and event = 'left_use' and event_count > 0 order by day limit 5

-- name: verdicts
select judge, model, sum(helpful_count) helpful, sum(harmful_count) harmful
from analytics.verdicts
where playbook = 'support' and day between '2025-07-01' and '2025-07-31'
group by judge, model order by judge, model

-- name: movers
select key, helpful_count, harmful_count, net_count, helpful_rate, low, high
from analytics.movers('2025-07-01', '2025-08-01')
where playbook = 'support' order by net_count, key limit 3

-- name: verdict_drift
select key, earlier_rate, recent_rate, difference, low, high, is_significant
from analytics.verdict_drift('2025-07-01', '2025-08-01')
where playbook = 'support' order by difference, key limit 3

-- name: funnel
select stage_number, stage, sum(count) count
from analytics.funnel
where playbook = 'support' and day between '2025-07-01' and '2025-07-31'
group by stage_number, stage order by stage_number

-- name: effects
select key, basis, with_runs, with_rate, without_runs, without_rate, difference, low, high
from analytics.effects('2025-07-01', '2025-08-01')
where playbook = 'support' and key = 'mis-00005' order by basis

-- name: improvement
select week, runs, successes, rate, rate_low, rate_high, without_runs
from analytics.improvement('2025-07-01', '2025-08-01')
where playbook is null order by week nulls first limit 4

-- name: coverage
select day, retrieval_count, strong_count, weak_count, unmatched_count, median_best_score
from analytics.coverage
where playbook = 'support' and weak_count + unmatched_count > 0 order by day limit 3

-- name: uncovered_queries
select created_at, kind, query, best_score, bullet_count
from analytics.uncovered_queries
where playbook = 'support' order by created_at limit 2

-- name: near_duplicates
select key, other_key, cosine
from analytics.near_duplicates
where playbook = 'support' order by cosine desc, key limit 3

-- name: contradictions
select key, other_key, status, other_status, found_at
from analytics.contradictions
where playbook = 'support' order by found_at, key limit 3

-- name: conflicts
select created_at, task_key, reported_outcome, check_outcome, reason
from analytics.conflicts
where playbook = 'support' order by created_at limit 3

-- name: costs
select model, purpose, sum(call_count) calls, sum(cost_usd) usd
from analytics.costs
where playbook = 'support' and day between '2025-07-01' and '2025-07-31'
group by model, purpose order by model, purpose

-- name: unit_costs
select cost_usd, trace_count, bullet_count, usd_per_trace, usd_per_bullet
from analytics.unit_costs
where playbook = 'support'

-- name: agent_runs
select confidence_band, state, sum(run_count) run_count, sum(right_count) right_count, sum(wrong_count) wrong_count
from analytics.agent_runs
where playbook = 'support' and day between '2025-07-01' and '2025-07-31'
group by confidence_band, state order by confidence_band, state

-- name: error_categories
select error_category, sum(reflection_count) reflections, sum(failed_count) failed
from analytics.error_categories
where playbook = 'support' and day between '2025-07-01' and '2025-07-31'
group by error_category order by error_category

-- name: days
select day, starts_at, ends_at from analytics.days order by day limit 2

-- name: playbook_at
select status, count(*)
from analytics.playbook_at('support', '2025-07-01')
group by status order by status

-- name: playbook_diff
select key, change, status_before, status_after
from analytics.playbook_diff('support', '2025-07-25', '2025-07-28')
order by key limit 3
