-- name: harmful_bullets
select playbook, key, title, helpful, harmful, status
from bullets
where harmful > 0
order by harmful desc, key

-- name: success_by_week
select playbook, week, runs, round(100 * with_rate) as percent_with_advice,
       round(100 * without_rate) as percent_without
from improvement(now() - interval '60 days', now())
where playbook is not null and week is not null
order by playbook, week

-- name: latest_changes
select changed_at::date as day, playbook, key, change_type, changed_by, reason
from bullet_versions
where changed_at > now() - interval '30 days'
order by changed_at desc

-- name: cost_of_learning
select playbook, purpose, sum(call_count) as calls, sum(input_tokens) as input_tokens,
       round(sum(cost_usd), 2) as usd
from costs
group by playbook, purpose
order by usd desc
